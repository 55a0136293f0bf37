//! Stored tensors on the stem of a claimed weight that no scheme has consumed.
//!
//! `X.weight`, `X.qweight` and others have the stem `X`; what else begins with `X.` may be a part of the weight, and so may
//! `X_scale` and the like. A weight that is not named so, as stacked experts are, is its own stem, which `.` or `_` extends.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::quant::settings::is_altering;
use crate::read::catalog::quote;

use super::harmless;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the stems of the weights";

/// Words behind a stem that are looked at: parts of the layouts that are known have up to four. A file decides how many
/// a name has, and each is compared with all stems.
pub(super) const MAX_WORDS: usize = 16;

/// Whether a name is of a weight or a bias of a module of its own.
fn is_parameter(name: &str) -> bool {
    let Some((module, "weight" | "bias")) = name.rsplit_once('.') else {
        return false;
    };
    // `X.rotation.weight` is no module of its own
    let inner = module.rmatch_indices('.').nth(1);
    !is_altering(inner.map_or(module, |(at, _)| &module[at..]))
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
}

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
        // any FP8 tensor is claimed as a weight without scales, also one that is a scale
        let is_open = matches!(slots[tensor], TensorClaim::Free) || is_unscaled(&slots[tensor]);
        is_open && !is_parameter(&cx.info(tensor).name)
    };
    // most models have none: then no list of stems is made
    let is_weight = |slot: &TensorClaim| matches!(slot, TensorClaim::Weight(_));
    if !slots.iter().any(is_weight) || !(0..slots.len()).any(is_candidate) {
        return Ok(());
    }
    let stems = Stems::of(cx, slots)?;
    for tensor in (0..slots.len()).filter(|&tensor| is_candidate(tensor)) {
        let name = &*cx.info(tensor).name;
        let Some((weight, rest)) = stems.owner(cx, name)? else {
            continue;
        };
        if weight == tensor || harmless::explains_itself(rest) || harmless::is_of_activations(name)
        {
            continue;
        }
        // a parameter of a module of its own, unless its name says otherwise
        let inner = rest.rsplit_once('.');
        if inner.is_some_and(|(_, last)| matches!(last, "weight" | "bias")) && !is_altering(rest) {
            continue;
        }
        let TensorClaim::Weight(claimed) = &slots[weight] else {
            continue;
        };
        let why = format!("{} beside it is not known to its scheme", quote(name));
        // the type of a GGUF tensor says how it is decoded; FP8 without scales is often no more than a cast
        if claimed.scheme == "ggml" || (is_unscaled(&slots[weight]) && !cx.config.claims_scales()) {
            if claimed.scheme != "ggml" || !rest.contains('.') {
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
