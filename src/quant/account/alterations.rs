//! Tensors by which weights may have been altered, and that no weight's stem has: matrices of rotations anywhere in a file of
//! quantised weights, and scales beside weights in floating point.

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::quant::settings::is_rotation;
use crate::read::catalog::quote;

use super::integers::is_float;
use super::tensor_claim::TensorClaim;

const WHAT: &str = "the names of the tensors";

/// Last components of names of tensors that stored weights are decoded with.
static FACTORS: &[&str] = &[
    "weight_scale",
    "weight_scales",
    "weight_scale_inv",
    "weight_scale_2",
    "scale_weight",
    "qscale",
    "qscale_weight",
    "weight_shift",
    "weight_offset",
    "weight_zero_point",
    "weight_rotation",
    "weight_permutation",
    "weight_codebook",
    "weight_lut",
];

/// Adds the tensors that are found to `warnings`. `is_quantised`: a weight of the file was claimed.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    is_quantised: bool,
    warnings: &mut Vec<String>,
) -> Result<()> {
    // arrays of NumPy are data of any kind
    if matches!(cx.catalog.format, "npy" | "npz") {
        return Ok(());
    }
    for (tensor, _) in slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| matches!(slot, TensorClaim::Free))
    {
        let info = cx.info(tensor);
        let (module, last) = info.name.rsplit_once('.').unwrap_or(("", &info.name));
        cx.budget.steps(1 + last.len() as u64 / 16, WHAT)?;
        if !is_float(&info.encoding) {
            continue;
        }
        let text = if FACTORS.contains(&last) {
            let Some(weight) = cx.sibling(module, ".weight") else {
                continue;
            };
            let encoding = &cx.info(weight).encoding;
            if !matches!(slots[weight], TensorClaim::Free) || !is_float(encoding) {
                continue;
            }
            let (weight, factor) = (quote(&cx.info(weight).name), quote(&info.name));
            format!(
                "{weight}: {factor} beside it is not known for {encoding}; the weight is copied without it"
            )
        } else if is_quantised && is_rotation(last) && info.shape.len() > 1 {
            format!(
                "{} beside quantised weights is a rotation by its name; the weights are not rotated back",
                quote(&info.name)
            )
        } else {
            continue;
        };
        cx.budget.text(text.len(), WHAT)?;
        warnings.push(text);
    }
    Ok(())
}
