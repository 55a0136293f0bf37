//! Tensors by which weights may have been altered, and that no weight's stem has: matrices of rotations anywhere in a file of
//! quantised weights, and scales beside weights in floating point.

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::quant::settings::is_rotation;
use crate::read::catalog::quote;

use super::integers::is_float;
use super::tensor_claim::{TensorClaim, is_unscaled};

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

/// The name of a factor of a GGUF. Elsewhere norms and attentions have one of this name.
const OF_GGUF: &str = "scale";

/// Names of the halves of FlatQuant's matrices.
static HALVES: &[&str] = &["matrix_left", "matrix_right"];

/// Names of codes behind the name of their module.
static CODES: [&str; 7] = [
    ".weight",
    ".qweight",
    ".weight_packed",
    ".W_q",
    ".weight_qdata",
    "._weight_qdata",
    "_blocks",
];

/// Components at the end of a name that say which of several tensors it is.
const MAX_COMPONENTS: usize = 3;

/// Whether a tensor is a rotation, an order or a table by its name, in which a parameter or a position may stand last: `rotation.weight`,
/// `rotations.0`, SpinQuant's `R1`, `attn_rot.weight`. Signs and orders are vectors.
fn is_of_rotation(name: &str, shape: &[u64]) -> bool {
    let is_square = matches!(shape, [.., rows, cols] if rows == cols);
    let is_word = |name: &str| {
        let mut words = name.split('_');
        is_rotation(name)
            || words.any(|word| {
                matches!(
                    word,
                    "rot"
                        | "rots"
                        | "rotmat"
                        | "had"
                        | "perm"
                        | "perms"
                        | "lut"
                        | "luts"
                        | "smooth"
                )
            })
    };
    // `R1`, `R_1`, `R2_T`
    let is_of_spinquant = |name: &str| {
        let digits = name.strip_prefix("R_").or_else(|| name.strip_prefix('R'));
        let number = digits.and_then(|digits| digits.split('_').next());
        matches!(number, Some("1" | "2" | "3" | "4"))
    };
    for component in name.rsplit('.').take(MAX_COMPONENTS) {
        if is_word(component)
            || HALVES.contains(&component)
            || (is_square && is_of_spinquant(component))
        {
            return true;
        }
        let is_position = component.bytes().all(|byte| byte.is_ascii_digit());
        if !is_position && !matches!(component, "weight" | "matrix" | "data") {
            return false;
        }
    }
    false
}

/// The codes of the module whose name is behind the first word of a tensor's: `perm.l.0.fc` beside `l.0.fc.qweight`. Averages and other
/// copies of a model have the whole name of the weight there.
fn weight_behind(cx: &Context<'_>, slots: &[TensorClaim], name: &str) -> Option<usize> {
    // parameters of modules, most tensors, are not looked up
    if name.ends_with(".weight") || name.ends_with(".bias") {
        return None;
    }
    let (_, module) = name.split_once('.')?;
    let (codes, _) = cx.first_sibling(module, &CODES)?;
    (!matches!(slots[codes], TensorClaim::Free)).then_some(codes)
}

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
    let is_gguf = cx.catalog.format == "gguf";
    // FP8 without scales is a cast, also of a matrix that is no weight
    let is_candidate = |slot: &TensorClaim| matches!(slot, TensorClaim::Free) || is_unscaled(slot);
    for (tensor, slot) in slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| is_candidate(slot))
    {
        let info = cx.info(tensor);
        cx.budget.steps(1 + info.name.len() as u64 / 16, WHAT)?;
        // without quantised weights a factor alone is looked for, and none is called so
        if !is_quantised && info.name.ends_with(".weight") {
            continue;
        }
        let (module, last) = info.name.rsplit_once('.').unwrap_or(("", &info.name));
        let is_factor = matches!(slot, TensorClaim::Free)
            && is_float(&info.encoding)
            && (FACTORS.contains(&last) || (is_gguf && last == OF_GGUF));
        let text = if is_factor {
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
        } else if is_quantised && info.elements() > 1 && is_of_rotation(&info.name, &info.shape) {
            format!(
                "{} beside quantised weights is a rotation, an order or a table of them by its name; they are made without it",
                quote(&info.name)
            )
        } else if is_quantised
            && matches!(slot, TensorClaim::Free)
            && let Some(weight) = weight_behind(cx, slots, &info.name)
        {
            format!(
                "{} has the name of the module of {} behind its first word; the weight is made without it",
                quote(&info.name),
                quote(&cx.info(weight).name)
            )
        } else {
            continue;
        };
        cx.budget.text(text.len(), WHAT)?;
        warnings.push(text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_of_rotation;

    #[test]
    fn names_of_matrices() {
        for name in [
            "hadamard.weight",
            "model.rotation.weight",
            "rotations.0.weight",
            "R1",
            "model.layers.0.self_attn.R2",
            "spinquant.R_1",
            "R2_T",
            "rotmat",
            "l.0.ln_trans.matrix_left",
            "blk.0.attn_rot.weight",
        ] {
            assert!(is_of_rotation(name, &[64, 64]), "{name}");
        }
        for name in [
            "rotary.weight",
            "rotation.proj.bias",
            "model.layers.0.weight",
            "R12",
            "transformer.0.weight",
        ] {
            assert!(!is_of_rotation(name, &[64, 64]), "{name}");
        }
        assert!(!is_of_rotation("R1", &[64, 32]));
        assert!(is_of_rotation("rotation_signs", &[64]) && !is_of_rotation("R1", &[64]));
    }
}
