//! The flags `conj` and `neg` of a tensor, the last argument of a rebuild call.
//!
//! PyTorch implements conjugation and negation of complex parts as views: the stored bytes stay, and a flag says that
//! signs are to be flipped on reading. Source: `torch/_utils.py`, `_rebuild_tensor_v2`.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Encoding, TensorInfo, ViewFlags};
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

/// Sets the flags of a tensor from a dict such as `{'conj': True}`.
pub(super) fn apply(
    heap: &ValueHeap<'_>,
    mut info: TensorInfo,
    bits: Option<&ValueId>,
) -> Result<TensorInfo> {
    let Some(&bits) = bits else { return Ok(info) };
    let items = match heap.get(bits) {
        // `_rebuild_tensor_v2` has `metadata=None` as its default, which some writers store
        PickleValue::None => return Ok(info),
        PickleValue::Dict { items, .. } => heap.container(items),
        _ => {
            return Err(Error::malformed(
                "the last argument of a tensor, its flags, is not a dict",
            ));
        }
    };
    let mut flags = ViewFlags::default();
    for pair in items.chunks_exact(2) {
        let on = heap.get(pair[1]) == PickleValue::Bool(true);
        match heap.text_of(pair[0]) {
            Some("conj") => flags.conj = on,
            Some("neg") => flags.neg = on,
            _ => {} // PyTorch ignores unknown flags too
        }
    }
    let Encoding::Plain(dtype) = info.encoding else {
        if flags != ViewFlags::default() {
            info.pytorch.get_or_insert_default().view_flags = flags;
        }
        return Ok(info);
    };
    // `Tensor.conj` of a real tensor returns the tensor itself, so PyTorch never writes this flag for one
    if flags.conj && !matches!(dtype, Dtype::C32 | Dtype::C64 | Dtype::C128) {
        return Err(Error::malformed(
            "a tensor has the flag `conj` but its dtype is not complex",
        ));
    }
    // flipping a sign bit negates floats only
    let signed = matches!(
        dtype,
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 | Dtype::C32 | Dtype::C64 | Dtype::C128
    );
    if flags.neg && !signed {
        return Err(Error::unsupported(format!(
            "a tensor of {dtype} with the flag `neg` cannot be read"
        )));
    }
    // a tensor without elements has no signs to flip
    if flags != ViewFlags::default() && info.elements() > 0 {
        info.pytorch.get_or_insert_default().view_flags = flags;
    }
    Ok(info)
}
