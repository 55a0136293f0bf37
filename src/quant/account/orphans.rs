//! Factors and shapes of weights whose codes are not in the file: they are no tensors of a model.

use std::collections::HashSet;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::{Context, plain};
use crate::read::catalog::quote;

use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "the factors of weights";

/// Formats whose files have weights of several tensors.
static MODELS: &[&str] = &["safetensors", "pth", "dcp"];

/// Last components of names that nothing has but a part of a quantised weight.
static FACTORS: &[&str] = &[
    "SCB",
    "g_idx",
    "nbits",
    "packing",
    "pre_quant_scale",
    "qscale_weight",
    "qzeros",
    "scale_weight",
    "svdquant_lora_a",
    "svdquant_lora_b",
    "weight_g_idx",
    "weight_global_scale",
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "weights_scaling_factor",
];

/// Last components below `X.weight` and `X.weight_quantizer`.
static OF_WEIGHT: &[&str] = &[
    "_double_scale",
    "_scale",
    "_shift",
    "absmax",
    "nested_absmax",
    "quant_map",
];
static BELOW: &[&str] = &[".weight", ".weight_quantizer"];

/// The beginning of torchao's names.
const TORCHAO: &str = "_weight_";

/// Ends of names of scales of stacked experts, behind the name of the parameter.
static OF_EXPERTS: &[&str] = &["_weight_scale", "_weight_scale_2", "_proj_scale"];

/// Names that the codes of a weight have in its module.
static CODES: &[&str] = &[
    ".weight",
    ".qweight",
    ".weight_packed",
    ".weight._data",
    ".weight._data._data",
    ".W_q",
    ".q_weight",
    "._weight_qdata",
    "._weight_packed_weight",
    ".B",
    ".codes",
    ".compressed",
];

/// Factors that are listed.
const MAX_LISTED: usize = 16;

/// Adds factors without a weight to `refused`; in a file without quantised weights, which may be one of scales alone, they are
/// `warnings`. The parts of weights that a scheme has recognised and cannot decode, `failed`, are refused with them.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    failed: &[usize],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !MODELS.contains(&cx.catalog.format) {
        return Ok(());
    }
    let is_quantised = slots.iter().any(|slot| !matches!(slot, TensorClaim::Free));
    let mut listed = 0;
    let mut failed_modules: Option<HashSet<&str>> = None;
    for (tensor, slot) in slots.iter().enumerate() {
        let info = cx.info(tensor);
        if !matches!(slot, TensorClaim::Free) {
            continue;
        }
        cx.budget.steps(1 + info.name.len() as u64 / 64, WHAT)?;
        // most tensors by far, and no factor's name
        if info.name.ends_with(".weight") || info.name.ends_with(".bias") {
            continue;
        }
        let Some(module) = module_of_factor(cx, &info.name, plain(info), is_quantised) else {
            continue;
        };
        cx.budget
            .steps(CODES.len() as u64 * (1 + module.len() as u64 / 16), WHAT)?;
        if cx.position(module).is_some() || cx.first_sibling(module, CODES).is_some() {
            continue;
        }
        let failed_modules = match &failed_modules {
            Some(modules) => modules,
            None => {
                cx.budget.memory(64 * failed.len() as u64, WHAT)?;
                let names = failed.iter().map(|&tensor| &*cx.info(tensor).name);
                failed_modules.insert(names.flat_map(modules_around).collect())
            }
        };
        let own = info.name.rsplit_once('.').map_or("", |(module, _)| module);
        if failed_modules.contains(own) {
            continue;
        }
        let why = "a factor or a shape of a weight by its name, whose codes are not in the file";
        if is_quantised {
            add(cx, refused, tensor, why.to_owned())?;
        } else if listed < MAX_LISTED {
            listed += 1;
            let text = format!("{}: {why}", quote(&info.name));
            cx.budget.text(text.len(), WHAT)?;
            warnings.push(text);
        }
    }
    Ok(())
}

/// The module that a tensor is in, and the one around it: a state of bitsandbytes is two levels below the module.
fn modules_around(name: &str) -> Vec<&str> {
    let ends = name.rmatch_indices('.').map(|(end, _)| &name[..end]);
    ends.take(2).collect()
}

/// The module of the weight that a tensor is a factor of by its name, or the name of the parameter.
fn module_of_factor<'n>(
    cx: &Context<'_>,
    name: &'n str,
    dtype: Option<Dtype>,
    is_quantised: bool,
) -> Option<&'n str> {
    let (module, last) = name.rsplit_once('.')?;
    // shapes and masks are stored without quantisation too
    if last == "weight_shape" && !is_quantised {
        return None;
    }
    let is_exponent = matches!(dtype, Some(Dtype::F8_E8M0 | Dtype::U8));
    let is_factor = FACTORS.contains(&last)
        || last.starts_with(TORCHAO)
        || (last == "scale" && dtype == Some(Dtype::F8_E8M0))
        // `scales` alone is a common word
        || (last == "scales"
            && (is_exponent
                || cx
                    .first_sibling(module, &[".qzeros", ".biases", ".qbiases"])
                    .is_some()));
    if is_factor {
        return Some(module);
    }
    if OF_WEIGHT.contains(&last) {
        return BELOW.iter().find_map(|below| module.strip_suffix(below));
    }
    OF_EXPERTS.iter().find_map(|end| {
        let front = name.strip_suffix(end)?;
        // the last word is the parameter's
        match *end {
            "_proj_scale" => name.strip_suffix("_scale"),
            _ => Some(front),
        }
    })
}
