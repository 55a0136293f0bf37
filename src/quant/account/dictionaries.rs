//! The dictionaries of a pickle in which codes and their factors are, which need not be the same one.

use std::collections::HashMap;

use crate::base::error::Result;
use crate::quant::scheme::Context;
use crate::quant::settings::is_altering;

use super::harmless;
use super::searched_words::{SearchedText, SearchedWord, word};
use super::tensor_claim::TensorClaim;

const WHAT: &str = "the metadata";

/// Words of values that weights are decoded with.
static PARTS: &[SearchedWord] = &[
    word("scale"),
    word("quant"),
    word("zero"),
    word("absmax"),
    word("amax"),
    word("exponent"),
    word("multiplier"),
    word("shift"),
];

/// Whether a name says that it is of something that weights are decoded with.
pub(super) fn is_part(rest: &str) -> bool {
    is_altering(rest) || SearchedText::new(rest).has(PARTS)
}

/// Dictionaries inside of a weight's whose values are looked at.
pub(super) const MAX_INNER: usize = 3;

/// The modules in which codes are that are not called `weight`: `{"qdata": codes, "rot": "had"}` under a name.
pub(super) fn containers<'c>(
    cx: &Context<'c>,
    slots: &[TensorClaim],
) -> Result<HashMap<&'c str, usize>> {
    let mut found = HashMap::new();
    for (tensor, _) in slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| matches!(slot, TensorClaim::Weight(_)))
    {
        let name = &*cx.info(tensor).name;
        cx.budget.steps(1 + name.len() as u64 / 16, WHAT)?;
        if let Some((module, last)) = name.rsplit_once('.')
            && last != "weight"
            && !harmless::is_data(name)
        {
            cx.budget.memory(48, WHAT)?;
            found.insert(module, tensor);
        }
    }
    Ok(found)
}
