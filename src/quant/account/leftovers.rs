//! Stored tensors on the stem of a claimed weight that no scheme has consumed.
//!
//! `X.weight`, `X.qweight` and others have the stem `X`; what else begins with `X.` may be a part of the weight, and so may
//! `X_scale` and the like. So may `X.perm.weight`, a parameter of a module inside of the weight's. A weight that is not named so, as stacked experts are, is its own stem, which `.` or `_` extends.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::models::names::{is_in_front, is_router};
use crate::quant::scheme::Context;
use crate::quant::settings::is_altering;
use crate::read::catalog::quote;

use super::harmless::{self, is_integer};
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the stems of the weights";

/// Words behind a stem that are looked at: parts of the layouts that are known have up to four. A file decides how many
/// a name has, and each is compared with all stems.
pub(super) const MAX_WORDS: usize = 16;

/// The module of a parameter: `X` of `X.weight` and `X.bias`.
fn module_of_parameter(name: &str) -> Option<&str> {
    match name.rsplit_once('.') {
        Some((module, "weight" | "bias")) => Some(module),
        _ => None,
    }
}

/// The stems of claimed weights.
pub(super) struct Stems<'s> {
    /// The tensor that was claimed, and whether `_` extends the stem too.
    rows: HashMap<&'s str, (usize, bool)>,
}

impl<'s> Stems<'s> {
    pub(super) fn of(cx: &Context<'_>, slots: &'s [TensorClaim]) -> Result<Self> {
        const ROW: u64 = 6 * size_of::<usize>() as u64;
        let weights = slots
            .iter()
            .enumerate()
            .filter_map(|(tensor, slot)| match slot {
                TensorClaim::Weight(weight) => Some((tensor, weight)),
                _ => None,
            });
        let count = weights.clone().count();
        cx.budget.memory(ROW * count as u64, WHAT)?;
        let mut rows = HashMap::with_capacity(count);
        for (tensor, weight) in weights {
            let name = &*weight.name;
            let (stem, whole) = match name.strip_suffix(".weight") {
                Some(stem) => (stem, false),
                None => (name, true),
            };
            // a module may have two weights: the quantised one has more parts
            let (known, _) = *rows.entry(stem).or_insert((tensor, whole));
            if parts(slots, known) < weight.parts.len() {
                rows.insert(stem, (tensor, whole));
            }
        }
        Ok(Self { rows })
    }

    /// Whether this is the name of a weight's module.
    pub(super) fn has(&self, module: &str) -> bool {
        self.rows.contains_key(module)
    }

    /// The weight on whose stem this name is, and what stands behind the stem.
    pub(super) fn owner<'n>(
        &self,
        cx: &Context<'_>,
        name: &'n str,
    ) -> Result<Option<(usize, &'n str)>> {
        let ends = name.rmatch_indices(['.', '_']).take(MAX_WORDS);
        for (end, sign) in ends {
            cx.budget.steps(1 + end as u64 / 64, WHAT)?;
            if let Some(&(tensor, whole)) = self.rows.get(&name[..end])
                && (sign == "." || whole || speaks(&name[end + 1..]))
            {
                return Ok(Some((tensor, &name[end + 1..])));
            }
        }
        Ok(None)
    }

    /// The weight in whose module the module of a parameter is, and the rest of the parameter's name: `X.perm.weight` is in
    /// `X`, and so is `X_scale.weight`.
    fn around<'n>(
        &self,
        cx: &Context<'_>,
        name: &'n str,
        module: &str,
    ) -> Result<Option<(usize, &'n str)>> {
        for (end, sign) in module.rmatch_indices(['.', '_']).take(MAX_INNER) {
            cx.budget.steps(1 + end as u64 / 64, WHAT)?;
            if let Some(&(tensor, _)) = self.rows.get(&module[..end])
                && (sign == "." || speaks(&module[end + 1..]))
            {
                return Ok(Some((tensor, &name[end + 1..])));
            }
        }
        Ok(None)
    }
}

/// Words at the end of the module of a parameter that are looked at.
const MAX_INNER: usize = 6;

/// Whether an adapter is on the stem of a name that ends in `rest`.
pub(super) fn has_adapter(cx: &Context<'_>, name: &str, rest: &str) -> bool {
    let stem = name
        .strip_suffix(rest)
        .and_then(|front| front.strip_suffix('.'));
    rest == harmless::STRENGTH
        && stem.is_some_and(|stem| cx.first_sibling(stem, harmless::ADAPTERS).is_some())
}

/// The names that the codes of a weight have, in whose module no layer is expected.
static CODES: &[&str] = &[".weight", ".qweight", ".weight_packed"];

/// Whether a module stands in one that has codes itself, as the layers of a model do not. Convolutions have a norm of their own in some
/// models, which may be cast to FP8.
fn is_in_weight(cx: &Context<'_>, slots: &[TensorClaim], module: &str) -> bool {
    let around = module.rsplit_once('.').map(|(around, _)| around);
    let found = around.and_then(|around| cx.first_sibling(around, CODES));
    let is_quantised =
        |slot: &TensorClaim| matches!(slot, TensorClaim::Weight(_)) && !is_unscaled(slot);
    found.is_some_and(|(codes, _)| is_quantised(&slots[codes]))
}

/// Words of modules that are layers of their own, wherever they stand, beside embeddings and routers. Most models
/// have no other parameters that are not quantised, so that no list of stems is made for them.
static LAYERS: &[&str] = &["norm", "head", "gate", "ln_"];

fn is_layer(module: &str) -> bool {
    let last = module.rsplit_once('.').map_or(module, |(_, last)| last);
    let is_named = LAYERS.iter().any(|word| last.contains(word));
    (is_named || is_in_front(last) || is_router(last)) && !is_altering(last)
}

/// Words of modules inside of a weight's, whose parameters change it. Others may be layers of their own.
static INNER: &[&str] = &[
    "delta", "factor", "low_rank", "lowrank", "outlier", "perm", "residual", "scale", "scaling",
    "shift", "smooth", "sparse", "svd", "lut", "zero",
];

/// Words of names behind `_` that belong to the module in front of it: `down_proj_scale` is no module of its own.
static WORDS: &[&str] = &[
    "scale",
    "scaling",
    "zero_point",
    "absmax",
    "quant",
    "shift",
    "lut",
];

fn speaks(rest: &str) -> bool {
    !rest.contains('.') && (is_altering(rest) || WORDS.iter().any(|word| rest.contains(word)))
}

fn parts(slots: &[TensorClaim], tensor: usize) -> usize {
    match &slots[tensor] {
        TensorClaim::Weight(weight) => weight.parts.len(),
        _ => 0,
    }
}

/// Adds weights with a left-over tensor to `refused`, and those that are made in spite of one to `warnings`.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let is_candidate = |tensor: usize| {
        let (info, slot) = (cx.info(tensor), &slots[tensor]);
        let is_free = matches!(slot, TensorClaim::Free);
        // any FP8 tensor is claimed as a weight without scales, also one that is a scale
        if !is_free && !is_unscaled(slot) {
            return false;
        }
        let Some(module) = module_of_parameter(&info.name) else {
            return true;
        };
        let is_of_layer = || {
            let is_bias = info.name.ends_with(".bias");
            (is_bias && info.shape.len() < 2)
                || (!is_bias && is_layer(module) && !is_in_weight(cx, slots, module))
        };
        is_free && (is_integer(&info.encoding) || !is_of_layer())
    };
    // most models have none: then no list of stems is made
    let is_weight = |slot: &TensorClaim| matches!(slot, TensorClaim::Weight(_));
    if !slots.iter().any(is_weight) {
        return Ok(());
    }
    let Some(first) = (0..slots.len()).find(|&tensor| is_candidate(tensor)) else {
        return Ok(());
    };
    let stems = Stems::of(cx, slots)?;
    for tensor in (first..slots.len()).filter(|&tensor| is_candidate(tensor)) {
        let info = cx.info(tensor);
        let name = &*info.name;
        let parameter = module_of_parameter(name);
        if let Some(module) = parameter
            && name.ends_with(".bias")
            && let Some(&(weight, _)) = stems.rows.get(module)
        {
            bias(cx, slots, (tensor, weight), refused, warnings)?;
            continue;
        }
        if name.ends_with(".bias") && !is_integer(&info.encoding) {
            continue;
        }
        let owner = match parameter {
            Some(module) => stems.around(cx, name, module)?,
            None => stems.owner(cx, name)?,
        };
        let Some((weight, rest)) = owner else {
            continue;
        };
        if rest == "bias" {
            bias(cx, slots, (tensor, weight), refused, warnings)?;
            continue;
        }
        if weight == tensor
            || harmless::explains_itself(rest, info.elements(), has_adapter(cx, name, rest))
            || harmless::is_of_activations(info)
        {
            continue;
        }
        let TensorClaim::Weight(claimed) = &slots[weight] else {
            continue;
        };
        let mut words = rest.split(['.', '_']);
        let speaks = is_altering(rest)
            || INNER.iter().any(|word| rest.contains(word))
            || words.any(|word| matches!(word, "rot" | "had"));
        // a module inside of another may be a layer of its own
        let may_be_layer = parameter.is_some() && !speaks;
        let why = format!("{} beside it is not known to its scheme", quote(name));
        let is_cast = is_unscaled(&slots[weight]) && !cx.config.claims_scales();
        // the type of a GGUF tensor says how it is decoded; FP8 without scales is often no more than a cast
        if is_of_ggml(slots, weight) || is_cast || may_be_layer {
            let is_inner = rest.contains('.') || parameter.is_some();
            if !is_of_ggml(slots, weight) || !is_inner || speaks {
                cx.budget.text(why.len() + claimed.name.len(), WHAT)?;
                let name = quote(&claimed.name);
                warnings.push(format!("{name}: {why}; the weight is made without it"));
            }
        } else {
            let why = format!("{why} ({})", claimed.scheme);
            add(cx, refused, weight, why)?;
        }
    }
    Ok(())
}

/// Names a bias that is none: integers, whose factor is not known, and matrices, which are no numbers for each output. A matrix beside
/// FP8 that was cast may be a table of positions.
fn bias(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    (tensor, weight): (usize, usize),
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let (info, TensorClaim::Weight(claimed)) = (cx.info(tensor), &slots[weight]) else {
        return Ok(());
    };
    if claimed.scheme == "ggml" {
        return Ok(());
    }
    if is_integer(&info.encoding) {
        let why = format!(
            "{} as a bias beside quantised codes, whose factor is not known",
            info.encoding
        );
        return add(cx, refused, tensor, why);
    }
    if !harmless::is_odd_bias(&info.shape, &claimed.shape) {
        return Ok(());
    }
    let (name, shape) = (quote(&info.name), info.shape.as_slice());
    let why =
        format!("{name} beside it is a bias by its name, and its shape {shape:?} is none of one");
    if is_unscaled(&slots[weight]) && !cx.config.claims_scales() {
        let own = quote(&claimed.name);
        cx.budget.text(why.len() + own.len(), WHAT)?;
        warnings.push(format!("{own}: {why}; the weight is made without it"));
        return Ok(());
    }
    add(cx, refused, weight, why)
}

/// Whether a weight is of a GGUF.
fn is_of_ggml(slots: &[TensorClaim], weight: usize) -> bool {
    matches!(&slots[weight], TensorClaim::Weight(weight) if weight.scheme == "ggml")
}
