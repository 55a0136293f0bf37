//! Weights that are stored quantised, although the configuration says that they are not, and the reverse.
//!
//! Readers make a plain layer for a module on such a list, and find no weight for it; nothing says which of the two the writer has
//! left behind. The stored tensors are complete, so that the weight is made, with a warning that names the list.

use crate::base::error::Result;
use crate::quant::scheme::{
    Context, Exclusion, Scheme, Weight, exclusion, plain_although_listed, unknown_patterns,
};
use crate::read::catalog::quote;

use super::integers::is_float;
use super::tensor_claim::TensorClaim;

const WHAT: &str = "the configured modules";

/// Weights that are named, of each statement the first.
const MAX_NAMED: usize = 8;

/// Statements of the configuration that stored weights contradict.
#[derive(Default)]
pub(super) struct ExcludedWeights<'c> {
    seen: Vec<Exclusion<'c>>,
    warnings: Vec<String>,
}

impl<'c> ExcludedWeights<'c> {
    /// Compares a weight with the lists of those that are not quantised.
    pub(super) fn compare(
        &mut self,
        cx: &Context<'c>,
        scheme: &Scheme,
        weight: &Weight,
    ) -> Result<()> {
        if self.warnings.len() >= MAX_NAMED {
            return Ok(());
        }
        let Some(found) = exclusion(cx, scheme, weight)? else {
            return Ok(());
        };
        if self.seen.contains(&found) {
            return Ok(());
        }
        let Exclusion { key, entry } = found;
        let (name, key, place) = (quote(&weight.name), quote(key), cx.config.place());
        let said = match entry {
            Some(entry) => format!("{} in {key} of {place} says", quote(entry)),
            None => format!("{key} of {place} does not list it, which says"),
        };
        let text = format!(
            "{name}: {said} that it is not quantised, and it is stored as {}; it is made as the others are",
            weight.scheme
        );
        cx.budget.text(2 * text.len(), WHAT)?;
        self.seen.push(found);
        self.warnings.push(text);
        Ok(())
    }

    pub(super) fn add_to(self, warnings: &mut Vec<String>) {
        warnings.extend(self.warnings);
    }
}

/// Adds the patterns of the configuration that are not understood to `warnings`.
pub(super) fn find_patterns(cx: &Context<'_>, warnings: &mut Vec<String>) -> Result<()> {
    for (key, pattern, why) in unknown_patterns(cx).take(MAX_NAMED) {
        let (pattern, key, place) = (quote(pattern), quote(key), cx.config.place());
        let text = format!(
            "the pattern {pattern} in {key} of {place} is not understood, and is ignored: {why}"
        );
        cx.budget.text(text.len(), WHAT)?;
        warnings.push(text);
    }
    Ok(())
}

/// Adds the first weight in floating point to `warnings` that the configuration has settings of quantisation for, by its name.
pub(super) fn find_plain(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    warnings: &mut Vec<String>,
) -> Result<()> {
    let is_plain = |tensor: usize| {
        matches!(slots[tensor], TensorClaim::Free) && is_float(&cx.info(tensor).encoding)
    };
    if let Some((key, tensor)) = plain_although_listed(cx, &is_plain)? {
        let info = cx.info(tensor);
        let (name, key, place) = (quote(&info.name), quote(key), cx.config.place());
        let text = format!(
            "{name}: {key} of {place} says that it is quantised, and it is stored as {}",
            info.encoding
        );
        cx.budget.text(text.len(), WHAT)?;
        warnings.push(text);
    }
    Ok(())
}
