//! PyTorch's quantised tensors: QINT8, QUINT8, QINT32, QUINT4X2 and QUINT2X4.
//!
//! Written by `torch.save`. Recognised by dtype. `w = (q - zero) * scale`, per tensor in F32, per channel with the product in
//! F64. Codes of 4 and 2 bits are packed from the lowest bits of each byte on, regardless of row ends. Scales and zero points
//! are in the tensor's pickled description, not tensors of the catalog.
//!
//! Refused: tensors without data, or without a scale for each channel.
//!
//! Source: PyTorch, `aten/src/ATen/native/quantized/AffineQuantizerBase.cpp`; precisions were measured on `Tensor.dequantize`
//! (2.15).

mod affine;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::read::catalog::{Layout, Quantizer, TensorInfo, elements};

use super::Weight;
use super::context::{Context, not_known, plain, unsupported};
use affine::{AffineParameters, PthAffine};

pub(super) fn claim(cx: &Context<'_>, tensor: usize) -> Result<Option<Weight>> {
    let info = cx.info(tensor);
    let Some(dtype) = plain(info) else {
        return Ok(None);
    };
    match dtype {
        Dtype::QINT8 | Dtype::QUINT8 | Dtype::QINT32 | Dtype::QUINT4X2 | Dtype::QUINT2X4 => {}
        _ => return Ok(None),
    }
    if matches!(info.layout, Layout::Absent | Layout::Sparse(_)) {
        return Err(unsupported(
            info,
            "quantised tensor without stored data (meta or sparse)",
        ));
    }
    #[allow(clippy::cast_possible_truncation)] // PyTorch computes in F32 and in 32 bits
    let scale = match info.quantizer() {
        None => return Err(not_known(info, "the description has no scale")),
        Some(Quantizer::PerTensor { scale, zero_point }) => {
            let zero = i32::try_from(*zero_point);
            let zero_point = zero
                .map_err(|_| not_known(info, format!("zero point {zero_point} is out of range")))?;
            // PyTorch keeps both in F64 and I64 and casts them here to what its kernels compute in
            AffineParameters::PerTensor {
                scale: *scale as f32,
                zero_point,
            }
        }
        Some(Quantizer::PerChannel {
            scales,
            zero_points,
            axis,
        }) => {
            let index = usize::try_from(*axis)
                .ok()
                .filter(|axis| *axis < info.shape.len());
            let axis = index.ok_or_else(|| {
                not_known(
                    info,
                    format!(
                        "quantisation axis {axis} is out of range for {} dimensions",
                        info.shape.len()
                    ),
                )
            })?;
            let channels = info.shape[axis];
            // next to a dimension of 0, the product of the others may overflow
            // the distance between two channels of the flattened tensor
            let inner = elements(&info.shape[axis + 1..]).unwrap_or(0).max(1);
            let scales = numbers(cx, info, scales, channels)?;
            let zero_points = numbers(cx, info, zero_points, channels)?
                .into_iter()
                .map(|z| z as f32)
                .collect();
            AffineParameters::PerChannel {
                scales,
                zero_points,
                inner,
            }
        }
    };
    let decoder = PthAffine {
        dtype,
        elements: info.elements(),
        scale,
    };
    Ok(Some(cx.weight(
        "pth_quantizer",
        &*info.name,
        &info.shape,
        &[("codes", tensor)],
        decoder,
    )))
}

/// The values of a tensor of one number per channel.
fn numbers(
    cx: &Context<'_>,
    info: &TensorInfo,
    stored: &TensorInfo,
    channels: u64,
) -> Result<Vec<f64>> {
    if stored.elements() != channels {
        let what = format!("{} values for {channels} channels", stored.elements());
        return Err(not_known(info, format!("{}: {what}", stored.name)));
    }
    let dtype = plain(stored);
    let bytes = match dtype {
        // `per_channel_affine` has F64 scales and I64 zero points, `per_channel_affine_float_qparams` floats for both
        Some(Dtype::F64 | Dtype::F32 | Dtype::I64 | Dtype::I32) => cx.peek_inside(info, stored)?,
        _ => {
            return Err(not_known(
                info,
                format!("{} has dtype {}", stored.name, stored.encoding),
            ));
        }
    };
    #[allow(clippy::cast_precision_loss)] // zero points, which become F32
    Ok(match dtype {
        Some(Dtype::F64) => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f64::from_le_bytes(*b))
            .collect(),
        Some(Dtype::F32) => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b).into())
            .collect(),
        Some(Dtype::I64) => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b) as f64)
            .collect(),
        _ => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b).into())
            .collect(),
    })
}
