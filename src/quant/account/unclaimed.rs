//! Tensors that no scheme claimed: unquantised ones, and packed codes that must not be mistaken for them.

use crate::base::error::{Remedy, Result};
use crate::base::kernel::Dtype;
use crate::models::names::is_of_experts;
use crate::read::catalog::{Encoding, Layout, TensorInfo};

use crate::quant::scheme::{Context, not_known, plain, unsupported};

use super::harmless::is_of_activations;

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
    if is_of_activations(&info.name)
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
    if integers_for_weights(cx, info) && !cx.assume_plain {
        return Err(not_known(
            info,
            format!(
                "{dtype} under a weight's name, and no known scheme; it may be packed codes, so it is not copied as a weight"
            ),
        ));
    }
    Ok(UnclaimedTensor::Plain(dtype))
}

/// Whether a tensor has integers under a name that a weight or packed codes have.
fn integers_for_weights(cx: &Context<'_>, info: &TensorInfo) -> bool {
    let integers = matches!(
        plain(info),
        Some(Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16 | Dtype::I32 | Dtype::U32)
    );
    // integers of other names (position ids, token counts) are data of the model and are copied
    let weight = info.name.ends_with("weight") || cx.packed_name(&info.name);
    // stacked experts are named after the parameter, without `weight`
    let experts = info.shape.len() > 2 && is_of_experts(&info.name);
    integers && info.shape.len() >= 2 && (weight || experts)
}

impl Context<'_> {
    /// Whether this is a quantised checkpoint: it has a quantisation configuration, or a weight was claimed.
    pub(crate) fn quantised(&self) -> bool {
        !self.config.is_empty() || self.caches.claimed.get()
    }

    /// Whether a tensor of this name is packed codes in some scheme.
    fn packed_name(&self, name: &str) -> bool {
        const PACKED: &[&str] = &[
            ".qweight",
            ".weight_packed",
            ".W_q",
            "_blocks",
            ".q_weight",
            ".trellis",
            ".Qidxs",
            ".codes",
            ".indices",
        ];
        PACKED.iter().any(|p| name.ends_with(p))
    }
}
