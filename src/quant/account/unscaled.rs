//! FP8 weights without scales among others of their kind that have them.
//!
//! FP8 without scales is often no more than a cast. Where the same module of other layers, or a module beside it, has a
//! scale, the scale is more likely to be missing: a warning, since some writers leave out a scale of 1.

use std::collections::HashSet;

use crate::base::error::Result;
use crate::quant::scheme::{Context, Weight};
use crate::read::catalog::quote;

use super::tensor_claim::{TensorClaim, is_unscaled};

const WHAT: &str = "the kinds of weights";

/// Warnings about weights that are listed.
const MAX_LISTED: usize = 8;

/// Adds a warning for each such weight.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    warnings: &mut Vec<String>,
) -> Result<()> {
    let listed = |weight: &&Weight| weight.name.ends_with(".weight") && !cx.skipped(&weight.name);
    let unscaled = || {
        let slots = slots.iter().filter(|slot| is_unscaled(slot));
        slots.filter_map(fp8).filter(listed)
    };
    if unscaled().next().is_none() {
        return Ok(());
    }
    let mut kinds = HashSet::new();
    for weight in slots
        .iter()
        .filter(|slot| !is_unscaled(slot))
        .filter_map(fp8)
    {
        let kind = kind(&weight.name);
        let parent = parent(&weight.name);
        cx.budget
            .memory((kind.len() + parent.len() + 128) as u64, WHAT)?;
        kinds.insert(kind);
        kinds.insert(parent.to_owned());
    }
    let missing = unscaled().filter(|weight| {
        kinds.contains(&kind(&weight.name)) || kinds.contains(parent(&weight.name))
    });
    for weight in missing.take(MAX_LISTED) {
        cx.budget.text(weight.name.len() + 64, WHAT)?;
        let name = quote(&weight.name);
        warnings.push(format!(
            "{name}: FP8 without a scale, which others of its kind have"
        ));
    }
    Ok(())
}

/// The weight, if it is an FP8 matrix.
fn fp8(slot: &TensorClaim) -> Option<&Weight> {
    match slot {
        TensorClaim::Weight(weight) if weight.scheme == "fp8" && weight.shape.len() > 1 => {
            Some(weight)
        }
        _ => None,
    }
}

/// A name without its numbers.
fn kind(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect()
}

/// The module that a weight's module is in.
fn parent(name: &str) -> &str {
    let mut ends = name.rmatch_indices('.');
    ends.nth(1).map_or("", |(end, _)| &name[..end])
}
