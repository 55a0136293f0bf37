//! PyTorch's own quantised tensors, QINT8, QUINT8, QINT32, QUINT4X2 and QUINT2X4: scale and zero point for all, or per
//! channel. The narrow ones lie in bytes from the lowest bits on, wherever rows end.
//!
//! Source: PyTorch, `aten/src/ATen/native/quantized/AffineQuantizerBase.cpp`; what is computed in which
//! precision was measured on `Tensor.dequantize` (2.15): per tensor in F32, per channel with the product in F64.

use crate::Dtype;
use crate::catalog::{Layout, Quantizer, TensorInfo, elements};
use crate::decode::{Affine, Affinity};
use crate::error::Result;

use super::Weight;
use super::context::{Context, malformed, plain, unsupported};

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
            "quantised, and saved without data of its own",
        ));
    }
    #[allow(clippy::cast_possible_truncation)] // PyTorch computes in F32 and in 32 bits
    let scale = match info.quantizer.as_deref() {
        None => return Err(malformed(info, "its scale is missing")),
        Some(Quantizer::PerTensor { scale, zero_point }) => {
            let zero = i32::try_from(*zero_point);
            let zero_point =
                zero.map_err(|_| malformed(info, format!("a zero point of {zero_point}")))?;
            Affinity::PerTensor {
                scale: *scale as f32,
                zero_point,
            }
        }
        Some(Quantizer::PerChannel {
            scales,
            zero_points,
            axis,
        }) => {
            let axis = usize::try_from(*axis)
                .ok()
                .filter(|axis| *axis < info.shape.len());
            let axis = axis.ok_or_else(|| malformed(info, "an axis that it does not have"))?;
            let channels = info.shape[axis];
            // sizes beside a zero may be anything
            let inner = elements(&info.shape[axis + 1..]).unwrap_or(0).max(1);
            let scales = numbers(cx, info, scales, channels)?;
            let zero_points = numbers(cx, info, zero_points, channels)?
                .into_iter()
                .map(|z| z as f32)
                .collect();
            Affinity::PerChannel {
                scales,
                zero_points,
                inner,
            }
        }
    };
    let decoder = Affine {
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

/// One number per channel.
fn numbers(
    cx: &Context<'_>,
    info: &TensorInfo,
    stored: &TensorInfo,
    channels: u64,
) -> Result<Vec<f64>> {
    if stored.elements() != channels {
        let what = format!("{} of them for {channels} channels", stored.elements());
        return Err(malformed(info, format!("{}: {what}", stored.name)));
    }
    let dtype = plain(stored);
    let bytes = match dtype {
        Some(Dtype::F64 | Dtype::F32 | Dtype::I64 | Dtype::I32) => cx.peek_inside(info, stored)?,
        _ => {
            return Err(malformed(
                info,
                format!("{} of {}", stored.name, stored.encoding),
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
