//! Quantised tensors: `_rebuild_qtensor(storage, offset, size, stride, (scheme, …), …)`.
//!
//! Source: `torch/_utils.py`. The scheme is `(per_tensor_affine, scale, zero_point)` or
//! `(per_channel_affine, scales, zero_points, axis)`; an element is `(code - zero_point) * scale`.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Quantizer, TensorInfo};
use crate::read::format::pickle::globals::{Global, QuantScheme};
use crate::read::format::pickle::value_heap::{PickleValue, ValueId};

use super::{CallInterpreter, unexpected_arguments};
use crate::read::format::pth::storage::non_negative;

/// Adds scale and zero point, or one of each per channel, to the tensor of codes.
pub(in crate::read::format::pth) fn apply(
    interpreter: &mut CallInterpreter<'_, '_, '_>,
    mut info: TensorInfo,
    params: ValueId,
) -> Result<TensorInfo> {
    let heap = interpreter.heap;
    use Dtype::{QINT8, QINT32, QUINT2X4, QUINT4X2, QUINT8};
    if !matches!(
        info.encoding,
        crate::read::catalog::Encoding::Plain(QINT8 | QUINT8 | QINT32 | QUINT4X2 | QUINT2X4)
    ) {
        return Err(Error::malformed(
            "the storage of a quantised tensor does not have a quantised dtype (qint8, quint8, qint32, quint4x2, quint2x4)",
        ));
    }
    let params = heap
        .sequence(params)
        .ok_or_else(|| unexpected_arguments("a quantised tensor"))?;
    let (scheme, params) = params
        .split_first()
        .ok_or_else(|| unexpected_arguments("a quantised tensor"))?;
    let quantizer = match (heap.get(*scheme), params) {
        (PickleValue::Global(Global::Scheme(QuantScheme::PerTensor)), &[scale, zero_point]) => {
            let scale = match heap.get(scale) {
                PickleValue::Float(scale) => scale,
                #[allow(clippy::cast_precision_loss)] // Python's `float()` rounds in the same way
                PickleValue::Int(scale) => scale as f64,
                _ => return Err(unexpected_arguments("a quantised tensor")),
            };
            let PickleValue::Int(zero_point) = heap.get(zero_point) else {
                return Err(unexpected_arguments("a quantised tensor"));
            };
            Quantizer::PerTensor { scale, zero_point }
        }
        (
            PickleValue::Global(Global::Scheme(QuantScheme::PerChannel)),
            &[scales, zero_points, axis],
        ) => {
            let axis = non_negative(heap, axis)
                .ok_or_else(|| unexpected_arguments("a quantised tensor"))?;
            let channels = usize::try_from(axis)
                .ok()
                .and_then(|axis| info.shape.get(axis).copied());
            let channels = channels.ok_or_else(|| {
                Error::malformed(format!(
                    "the quantisation axis of a tensor is {axis}, but the tensor has {} dimensions",
                    info.shape.len()
                ))
            })?;
            // `_rebuild_qtensor` accepts lists too
            if heap.sequence(scales).is_some() {
                interpreter.warn(
                    "the scales of a quantised tensor are a list instead of a tensor and are not listed"
                        .into(),
                );
                return Ok(info);
            }
            let (scales, zero_points) = (
                interpreter.part_argument(scales, "scales")?,
                interpreter.part_argument(zero_points, "zero_points")?,
            );
            // without this check a damaged file would be decoded with the scales of other channels
            if scales.elements() != channels || zero_points.elements() != channels {
                return Err(Error::malformed(format!(
                    "a quantised tensor has {channels} channels, but {} scales and {} zero points",
                    scales.elements(),
                    zero_points.elements()
                )));
            }
            Quantizer::PerChannel {
                scales: Box::new(scales),
                zero_points: Box::new(zero_points),
                axis,
            }
        }
        _ => return Err(unexpected_arguments("a quantised tensor")),
    };
    info.pytorch.get_or_insert_default().quantizer = Some(quantizer);
    Ok(info)
}
