//! Signs that PyTorch left to be flipped on reading: the last argument of a rebuild call.

use crate::Dtype;
use crate::catalog::{Encoding, Lazy, TensorInfo};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Heap, Id, Value};

/// Applies the lazy bits: `{'conj': True}`, `{'neg': True}`.
pub(super) fn apply(
    heap: &Heap<'_>,
    mut info: TensorInfo,
    bits: Option<&Id>,
) -> Result<TensorInfo> {
    let Some(&bits) = bits else { return Ok(info) };
    let items = match heap.get(bits) {
        Value::None => return Ok(info),
        Value::Dict { items, .. } => heap.open(items),
        _ => return Err(Error::malformed("a tensor whose metadata is not a dict")),
    };
    for pair in items.chunks_exact(2) {
        let on = heap.get(pair[1]) == Value::Bool(true);
        match heap.text_of(pair[0]) {
            Some("conj") => info.lazy.conj = on,
            Some("neg") => info.lazy.neg = on,
            _ => {} // PyTorch ignores others too
        }
    }
    let Encoding::Plain(dtype) = info.encoding else {
        return Ok(info);
    };
    if info.lazy.conj && !matches!(dtype, Dtype::C32 | Dtype::C64 | Dtype::C128) {
        return Err(Error::malformed(
            "a conjugated tensor of numbers that are not complex",
        ));
    }
    let signed = matches!(
        dtype,
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 | Dtype::C32 | Dtype::C64 | Dtype::C128
    );
    if info.lazy.neg && !signed {
        return Err(Error::unsupported(format!(
            "a lazily negated tensor of {dtype}"
        )));
    }
    if info.elements() == 0 {
        info.lazy = Lazy::default();
    }
    Ok(info)
}
