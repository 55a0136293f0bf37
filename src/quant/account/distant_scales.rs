//! Scales of FP8 weights that are under other names than the schemes know, or that are missing.
//!
//! FP8 without scales is often no more than a cast. It is not where a tensor names the weight and says `scale`, as
//! `scales.X` and `a_b_weight_scale` do, nor where the same weight of other layers has a scale.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::base::limits::text_cost;
use crate::quant::scheme::Context;
use crate::read::catalog::quote;

use super::harmless::is_of_activations;
use super::integers::is_float;
use super::leftovers::MAX_WORDS;
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the scales of FP8";

/// The tensor by which files of ComfyUI's older scaled FP8 are known: all their matrices in FP8 have scales.
const SCALED: &str = "scaled_fp8";

/// Adds unscaled weights whose scale is missing to `refused`, and those whose scale may be elsewhere.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !slots.iter().any(is_unscaled) {
        return Ok(());
    }
    missing(cx, slots, refused)?;
    elsewhere(cx, slots, refused, warnings)
}

/// A name without the numbers of its layers: `model.layers.*.mlp.down_proj.weight`.
fn role(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (i, part) in name.split('.').enumerate() {
        if i > 0 {
            out.push('.');
        }
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        out.push_str(if is_number { "*" } else { part });
    }
    out
}

/// Whether an unscaled weight is a matrix of a layer, which files of scaled FP8 scale. Embeddings and norms may be casts.
fn is_matrix(cx: &Context<'_>, tensor: usize) -> bool {
    let info = cx.info(tensor);
    let is_cast = ["embed", "norm", "shared", "wte", "wpe"]
        .iter()
        .any(|word| info.name.contains(word));
    info.shape.len() > 1 && info.name.ends_with(".weight") && !is_cast
}

fn missing(cx: &Context<'_>, slots: &[TensorClaim], refused: &mut Refusals) -> Result<()> {
    let fp8 = || {
        slots
            .iter()
            .enumerate()
            .filter_map(|(tensor, slot)| match slot {
                TensorClaim::Weight(weight) if weight.scheme == "fp8" => Some((tensor, weight)),
                _ => None,
            })
    };
    // the roles of weights with scales, each with one of them
    let mut scaled: HashMap<String, &str> = HashMap::new();
    for (_, weight) in fp8().filter(|(_, weight)| weight.parts.len() > 1) {
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        cx.budget.memory(text_cost(weight.name.len()) + 64, WHAT)?;
        scaled.entry(role(&weight.name)).or_insert(&weight.name);
    }
    let is_marked = cx.position(SCALED).is_some();
    if scaled.is_empty() && !is_marked {
        return Ok(());
    }
    for (tensor, weight) in fp8().filter(|(_, weight)| weight.parts.len() == 1) {
        cx.budget.steps(1 + weight.name.len() as u64 / 16, WHAT)?;
        let _role = cx.budget.temporary(text_cost(weight.name.len()), WHAT)?;
        if let Some(like) = scaled.get(&role(&weight.name)) {
            let why = format!("it has no scale, unlike {}", quote(like));
            add(cx, refused, tensor, why)?;
        } else if is_marked && is_matrix(cx, tensor) {
            let why = format!(
                "it has no scale, and {} says that there is one",
                quote(SCALED)
            );
            add(cx, refused, tensor, why)?;
        }
    }
    Ok(())
}

/// A name with one sign between its words.
fn joined(name: &str) -> String {
    name.replace('.', "_")
}

fn elsewhere(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let is_scale = |tensor: usize| {
        let info = cx.info(tensor);
        let name = &*info.name;
        matches!(slots[tensor], TensorClaim::Free)
            && is_float(&info.encoding)
            && ["scale", "scaling", "absmax"]
                .iter()
                .any(|word| name.contains(word))
            && !is_of_activations(name)
    };
    if !(0..slots.len()).any(is_scale) {
        return Ok(());
    }
    let mut stems: HashMap<String, usize> = HashMap::new();
    for tensor in (0..slots.len()).filter(|&tensor| is_unscaled(&slots[tensor])) {
        let name = &*cx.info(tensor).name;
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        // a stem of one word, such as `head`, is a part of many names
        if !stem.contains(['.', '_']) {
            continue;
        }
        cx.budget.memory(text_cost(stem.len()) + 64, WHAT)?;
        stems.insert(joined(stem), tensor);
    }
    for scale in (0..slots.len()).filter(|&tensor| is_scale(tensor)) {
        let name = &*cx.info(scale).name;
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        let _joined = cx.budget.temporary(text_cost(name.len()), WHAT)?;
        let words = joined(name);
        // with up to `MAX_WORDS` words less at the end and two less at the beginning
        let starts = std::iter::once(0).chain(words.match_indices('_').map(|(at, _)| at + 1));
        let mut owner = None;
        for start in starts.take(3) {
            let rest = &words[start..];
            let ends = std::iter::once(rest.len())
                .chain(rest.rmatch_indices('_').map(|(at, _)| at))
                .take(MAX_WORDS);
            for end in ends {
                cx.budget.steps(1 + end as u64 / 64, WHAT)?;
                owner = owner.or(stems.get(&rest[..end]).copied());
            }
        }
        let Some(weight) = owner else {
            continue;
        };
        // names on the stem itself are left-over tensors
        let own = &*cx.info(weight).name;
        let stem = own.strip_suffix(".weight").unwrap_or(own);
        if name
            .strip_prefix(stem)
            .is_some_and(|rest| rest.starts_with(['.', '_']))
        {
            continue;
        }
        let why = format!(
            "{} may be its scale, under a name that is not known",
            quote(name)
        );
        if cx.config.claims_scales() {
            add(cx, refused, weight, why)?;
        } else {
            cx.budget.text(why.len() + own.len(), WHAT)?;
            let own = quote(own);
            warnings.push(format!("{own}: {why}; the weight is made without it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::role;

    #[test]
    fn roles_are_names_without_numbers() {
        assert_eq!(
            role("model.layers.17.mlp.w1.weight"),
            "model.layers.*.mlp.w1.weight"
        );
        assert_eq!(role("experts.0.1.weight"), "experts.*.*.weight");
        assert_eq!(role("norm2.weight"), "norm2.weight");
    }
}
