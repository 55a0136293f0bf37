//! Factors and shapes of weights whose codes are not in the file, or are there in a dtype that no scheme reads: neither are
//! tensors of a model.

use std::collections::HashSet;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::{Context, plain};
use crate::read::catalog::quote;

use super::harmless::is_integer;
use super::integers::is_float;
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
            if info.name.ends_with(GLOBAL) {
                below_other_names(cx, slots, tensor, refused)?;
            }
            continue;
        };
        cx.budget
            .steps(CODES.len() as u64 * (1 + module.len() as u64 / 16), WHAT)?;
        let codes = cx.first_sibling(module, CODES).map(|(codes, _)| codes);
        if let Some(codes) = cx.position(module).or(codes) {
            match beside_codes(cx, slots, codes, (tensor, module)) {
                FoundCodes::Made => {}
                FoundCodes::Refused(why) => add(cx, refused, codes, why)?,
                FoundCodes::Named(why) => {
                    let text = format!("{}: {why}; it is copied", quote(&cx.info(codes).name));
                    cx.budget.text(text.len(), WHAT)?;
                    warnings.push(text);
                }
            }
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

/// The treatment of a tensor that has the name of codes, beside one that has the name of a factor of it.
enum FoundCodes {
    Made,
    Refused(String),
    /// It is made, with a warning.
    Named(String),
}

fn beside_codes(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    codes: usize,
    (factor, module): (usize, &str),
) -> FoundCodes {
    let (info, name) = (cx.info(codes), &*cx.info(factor).name);
    match &slots[codes] {
        // on its stem, but for the sign between them
        TensorClaim::Weight(weight) if name[module.len()..].starts_with(['/', ':']) => {
            let (name, scheme) = (quote(name), weight.scheme);
            FoundCodes::Refused(format!(
                "{name} beside it is not known to its scheme ({scheme})"
            ))
        }
        TensorClaim::Weight(_) | TensorClaim::Refused(_) | TensorClaim::Taken => FoundCodes::Made,
        TensorClaim::Free if info.shape.len() < 2 || is_integer(&info.encoding) => FoundCodes::Made,
        TensorClaim::Free => {
            let why = || {
                format!(
                    "{} beside {}, which is a factor of codes; no scheme reads them in this dtype",
                    info.encoding,
                    quote(name)
                )
            };
            if !is_float(&info.encoding) {
                return FoundCodes::Refused(why());
            }
            let is_index = ["g_idx", "shape", "nbits", "packing"];
            if is_index.iter().any(|end| name.ends_with(end)) {
                FoundCodes::Made
            } else if is_configured(cx, codes) {
                FoundCodes::Refused(why())
            } else if OF_WEIGHT.iter().any(|end| name.ends_with(end))
                && !name.contains("weight_scale")
            {
                FoundCodes::Named(why())
            } else {
                // a scale beside floats is named where rotations are (`alterations.rs`)
                FoundCodes::Made
            }
        }
    }
}

/// Whether the configuration says that a tensor is quantised, and stored so.
fn is_configured(cx: &Context<'_>, tensor: usize) -> bool {
    let says = |key: &str, values: &[&str]| {
        let said = cx.config.text(key);
        said.is_some_and(|said| values.contains(&said))
    };
    // the values of codes, stored as floats
    let is_fake = says("format", &["dense"])
        || says(
            "quantization_status",
            &["calibration", "frozen", "initialized"],
        )
        || says("export.weight_format", &["fake_quantized"]);
    !cx.config.is_empty() && !is_fake && !cx.skipped(&cx.info(tensor).name)
}

/// The end of the name of a factor of NVFP4, which other tensors have too.
const GLOBAL: &str = "global_scale";

/// Refuses the weight whose factor a tensor is by the end of its name, where the names in front differ.
fn below_other_names(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    tensor: usize,
    refused: &mut Refusals,
) -> Result<()> {
    let name = &*cx.info(tensor).name;
    let Some(module) = name
        .strip_suffix(GLOBAL)
        .and_then(|front| front.strip_suffix(SIGNS))
    else {
        return Ok(());
    };
    let inner = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
    for module in std::iter::once(module).chain(inner).take(MAX_FRONT) {
        cx.budget.steps(1 + module.len() as u64 / 16, WHAT)?;
        if let Some(weight) = cx.sibling(module, ".weight")
            && matches!(slots[weight], TensorClaim::Weight(_))
        {
            let why = format!("{} may be its factor, under another name", quote(name));
            return add(cx, refused, weight, why);
        }
    }
    Ok(())
}

/// Components in front of a name that one of two writers may lack.
const MAX_FRONT: usize = 4;

/// Signs between a module and its parameter.
const SIGNS: [char; 3] = ['.', '/', ':'];

/// Adds matrices in dtypes that weights are not stored in, beside which a tensor has the name of a scale, to `refused`.
pub(super) fn odd_codes(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
) -> Result<()> {
    if !MODELS.contains(&cx.catalog.format) {
        return Ok(());
    }
    const BESIDE: &[&str] = &["_scale", "_scale_inv", "_scales", "._scale"];
    for (tensor, slot) in slots.iter().enumerate() {
        let info = cx.info(tensor);
        let is_odd = matches!(
            plain(info),
            Some(
                Dtype::I64
                    | Dtype::U64
                    | Dtype::F4
                    | Dtype::F6_E2M3
                    | Dtype::F6_E3M2
                    | Dtype::F8_E8M0
            )
        );
        if !is_odd || info.shape.len() < 2 || !matches!(slot, TensorClaim::Free) {
            continue;
        }
        cx.budget.steps(4 + info.name.len() as u64 / 4, WHAT)?;
        if let Some((factor, _)) = cx.first_sibling(&info.name, BESIDE) {
            let factor = quote(&cx.info(factor).name);
            let why = format!("{} beside {factor}, which no scheme reads", info.encoding);
            add(cx, refused, tensor, why)?;
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
    let (module, last) = name.rsplit_once(SIGNS)?;
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
