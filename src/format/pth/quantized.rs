//! Quantised tensors: `_rebuild_qtensor(storage, offset, size, stride, (scheme, …), …)`.

use crate::Dtype;
use crate::catalog::{Quantizer, TensorInfo};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Id, Value};
use crate::format::pickle::world::{Global, Scheme};

use super::rebuild::{Work, wrong};
use super::storage::count;

pub(super) fn apply(
    work: &mut Work<'_, '_, '_>,
    mut info: TensorInfo,
    params: Id,
) -> Result<TensorInfo> {
    let heap = work.heap;
    use Dtype::{QINT8, QINT32, QUINT2X4, QUINT4X2, QUINT8};
    if !matches!(
        info.encoding,
        crate::Encoding::Plain(QINT8 | QUINT8 | QINT32 | QUINT4X2 | QUINT2X4)
    ) {
        return Err(Error::malformed("a quantised tensor whose storage is not"));
    }
    let params = heap
        .sequence(params)
        .ok_or_else(|| wrong("a quantised tensor"))?;
    let (scheme, params) = params
        .split_first()
        .ok_or_else(|| wrong("a quantised tensor"))?;
    let quantizer = match (heap.get(*scheme), params) {
        (Value::Global(Global::Scheme(Scheme::PerTensor)), &[scale, zero_point]) => {
            let scale = match heap.get(scale) {
                Value::Float(scale) => scale,
                #[allow(clippy::cast_precision_loss)] // as Python's float()
                Value::Int(scale) => scale as f64,
                _ => return Err(wrong("a quantised tensor")),
            };
            let Value::Int(zero_point) = heap.get(zero_point) else {
                return Err(wrong("a quantised tensor"));
            };
            Quantizer::PerTensor { scale, zero_point }
        }
        (Value::Global(Global::Scheme(Scheme::PerChannel)), &[scales, zero_points, axis]) => {
            let axis = count(heap, axis).ok_or_else(|| wrong("a quantised tensor"))?;
            let channels = usize::try_from(axis)
                .ok()
                .and_then(|axis| info.shape.get(axis).copied());
            let channels = channels.ok_or_else(|| {
                Error::malformed("a quantised tensor whose axis it does not have")
            })?;
            if heap.sequence(scales).is_some() {
                work.warn(
                    "the scales of a quantised tensor are kept in a list, not a tensor: not shown"
                        .into(),
                );
                return Ok(info);
            }
            let (scales, zero_points) = (
                work.part(scales, "scales")?,
                work.part(zero_points, "zero_points")?,
            );
            if scales.elements() != channels || zero_points.elements() != channels {
                return Err(Error::malformed(format!(
                    "a quantised tensor of {channels} channels with {} scales and {} zero points",
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
        _ => return Err(wrong("a quantised tensor")),
    };
    info.quantizer = Some(Box::new(quantizer));
    Ok(info)
}
