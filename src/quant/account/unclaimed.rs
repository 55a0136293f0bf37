//! Tensors that no scheme claimed: unquantised ones, and packed codes that must not be mistaken for them.

use crate::base::error::{Remedy, Result};
use crate::base::kernel::Dtype;
use crate::models::names::is_of_experts;
use crate::read::catalog::{Encoding, Layout, TensorInfo, quote};

use crate::quant::scheme::{Context, not_known, plain, unsupported};

use super::harmless::{is_integer, is_of_activations};

/// How a tensor without a claim is treated.
pub(crate) enum UnclaimedTensor {
    /// It is an output, with this dtype.
    Plain(Dtype),
    /// It is left out: quantised arithmetic alone needs it, such as a scale of activations.
    Dropped,
}

/// Classifies a tensor that no scheme claimed.
///
/// # Errors
/// If it has no elements that could be written (saved without data, sparse, a block type), or is an integer matrix under a
/// weight's name, which is likely to be codes of an unknown scheme.
pub(crate) fn classify_unclaimed(cx: &Context<'_>, tensor: usize) -> Result<UnclaimedTensor> {
    let info = cx.info(tensor);
    if is_of_activations(info)
        // scales of activations have an element per tensor or channel; a larger tensor of such a name is kept
        && info.elements() <= 1 << 20
        && cx.quantised()
    {
        return Ok(UnclaimedTensor::Dropped);
    }
    match &info.layout {
        Layout::Absent => {
            let what = "saved without data (PyTorch's meta device)";
            return Err(unsupported(info, what).with_remedy(Remedy::LeaveOut));
        }
        Layout::Sparse(_) => {
            let what = "sparse; it must be made dense before it is saved";
            return Err(unsupported(info, what).with_remedy(Remedy::LeaveOut));
        }
        _ => {}
    }
    let Encoding::Plain(dtype) = info.encoding else {
        // numpy stores dtypes that it does not have, such as ml_dtypes' bfloat16, as items without a type
        let remedy = match &info.encoding {
            Encoding::Opaque(item) if item.name.starts_with('V') && item.fields.is_empty() => {
                Remedy::LeaveOutOrReadItems
            }
            _ => Remedy::LeaveOut,
        };
        let what = format!("{} cannot be stored in a safetensors file", info.encoding);
        return Err(unsupported(info, what).with_remedy(remedy));
    };
    if under_weight_name(info) {
        let what = format!(
            "{dtype} under a weight's name, and no known scheme; it may be packed codes, so it is not copied as a weight"
        );
        if !cx.assume_plain {
            return Err(not_known(info, what));
        }
        let what = "under a weight's name, and no known scheme; it may be packed codes";
        cx.note(format!(
            "ignored: tensor {}: {dtype} {what}",
            quote(&info.name)
        ));
    }
    Ok(UnclaimedTensor::Plain(dtype))
}

/// Whether a tensor has integers under a name that a weight or packed codes have, or any elements under a name that only
/// packed codes have.
fn under_weight_name(info: &TensorInfo) -> bool {
    let (name, dtype) = (&*info.name, plain(info));
    if info.shape.len() < 2 {
        return false;
    }
    match dtype {
        Some(_) if is_integer(&info.encoding) => {
            // integers of other names (position ids, token counts) are data of the model and are copied
            // a bias of several dimensions is a weight by another name; a square one is GPT-2's causal mask, `attn.bias`
            let is_square = info
                .shape
                .last_chunk()
                .is_some_and(|[rows, cols]| rows == cols);
            let weight = name.ends_with("weight")
                || (name.ends_with(".bias") && !is_square)
                || is_packed_name(name)
                || is_telling(name)
                || name.split('.').any(|part| part == PACKED_PARAMETERS);
            // stacked experts are named after the parameter, without `weight`
            weight || (info.shape.len() > 2 && is_of_experts(name))
        }
        // indices and masks, but for these names
        Some(Dtype::I64 | Dtype::U64) => CODES.iter().any(|end| name.ends_with(end)),
        Some(Dtype::BOOL) => {
            (name.ends_with(".weight") && !name.contains("mask"))
                || CODES.iter().any(|end| name.ends_with(end))
        }
        // codes that were cast
        Some(
            Dtype::F16
            | Dtype::BF16
            | Dtype::F32
            | Dtype::F64
            | Dtype::F8_E4M3
            | Dtype::F8_E5M2
            | Dtype::F8_E4M3FNUZ
            | Dtype::F8_E5M2FNUZ,
        ) => CODES.iter().any(|end| name.ends_with(end)),
        // floats of a few bits are never without a scale
        Some(Dtype::F4 | Dtype::F6_E2M3 | Dtype::F6_E3M2 | Dtype::F8_E8M0) => {
            name.ends_with(".weight") || CODES.iter().any(|end| name.ends_with(end))
        }
        _ => false,
    }
}

/// Ends of names that only packed codes have.
static CODES: &[&str] = &[".qweight", ".weight_packed", ".q_weight", ".W_q"];

/// The parameters of a module that PyTorch has quantised, whose weights say how they are quantised unless that is lost.
const PACKED_PARAMETERS: &str = "_packed_params";

/// Whether a tensor of this name is packed codes in some scheme.
fn is_packed_name(name: &str) -> bool {
    const PACKED: &[&str] = &["_blocks", ".trellis", ".Qidxs", ".codes", ".indices"];
    PACKED.iter().chain(CODES).any(|end| name.ends_with(end))
}

/// Whether the last component of a name says that it is a weight: `weight_q`, `weights`, `packed`, `wte`. Masks, shapes
/// and factors of weights are not.
fn is_telling(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "weight", "weights", "qweight", "packed", "kernel", "qw", "wte", "wpe",
    ];
    const OTHERS: &[&str] = &[
        "mask", "masks", "shape", "size", "format", "version", "id", "ids",
        // factors, which are refused with their codes
        "scale", "scales", "zero", "zeros", "point", "offset", "shift",
    ];
    let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
    let has = |list: &[&str]| last.split('_').any(|word| list.contains(&word));
    has(WORDS) && !has(OTHERS)
}

impl Context<'_> {
    /// Whether this is a quantised checkpoint: it has a quantisation configuration, or a weight was claimed.
    pub(crate) fn quantised(&self) -> bool {
        !self.config.is_empty() || self.caches.claimed.get()
    }
}
