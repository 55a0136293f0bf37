//! The changes of values that several architectures have in common.

use crate::base::error::Result;
use crate::read::catalog::elements;

use super::model::Model;
use super::tensor_rules::{Change, ChangedTensor, StoredTensors};

/// Rows of the query projection.
///
/// llama.cpp rotates neighbouring elements of a head and transformers its halves, so the converter makes each head's rows
/// `[2, n]` into `[n, 2]`.
pub(in crate::models) const ROTARY_QUERY: Change = Change {
    to_hf: |model, stored| halves(stored, model.heads(stored.layer)?),
    to_gguf: |model, stored| pairs(stored, model.heads()?),
};

/// Like [`ROTARY_QUERY`], for the key projection.
pub(in crate::models) const ROTARY_KEY: Change = Change {
    to_hf: |model, stored| halves(stored, model.key_value_heads(stored.layer)?),
    to_gguf: |model, stored| pairs(stored, model.key_value_heads()?),
};

/// One expert of a stack.
pub(in crate::models) const EXPERT: Change = Change {
    to_hf: expert,
    to_gguf: |_, stored| Ok(vec![stored.stacked()?]),
};

/// A vector as a matrix of one row.
pub(in crate::models) const ONE_ROW: Change = Change {
    to_hf: |_, stored| {
        let count = count(stored)?;
        stored.rows_from(0, &[1, count])
    },
    to_gguf: |_, stored| {
        let count = count(stored)?;
        Ok(vec![stored.rows_from(0, &[count])?])
    },
};

/// The rows of a matrix as its columns.
pub(in crate::models) const TRANSPOSED: Change = Change {
    to_hf: |_, stored| stored.transposed(0),
    to_gguf: |_, stored| Ok(vec![stored.transposed(0)?]),
};

fn halves(stored: &StoredTensors<'_>, heads: u64) -> Result<ChangedTensor> {
    stored.swapped(pairs_of_head(stored, heads)?, 2, 1)
}

fn pairs(stored: &StoredTensors<'_>, heads: u64) -> Result<Vec<ChangedTensor>> {
    Ok(vec![stored.swapped(2, pairs_of_head(stored, heads)?, 1)?])
}

/// Half the rows of a head.
fn pairs_of_head(stored: &StoredTensors<'_>, heads: u64) -> Result<u64> {
    let rows = stored.matrix(0)?.0;
    // no remainder: rows of one head would be permuted into the next
    let head = rows
        .checked_div(heads)
        .filter(|head| head * heads == rows && head.is_multiple_of(2));
    Ok(head.ok_or_else(|| stored.wrong(0))? / 2)
}

fn expert(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let [experts, shape @ ..] = stored.shape(0) else {
        return Err(stored.wrong(0));
    };
    // a stack of vectors, as biases of experts are, has a row per expert too
    let rows = stored.matrix(0)?.0.checked_div(*experts).unwrap_or(0);
    stored.rows_from(stored.expert * rows, shape)
}

fn count(stored: &StoredTensors<'_>) -> Result<u64> {
    elements(stored.shape(0)).ok_or_else(|| stored.wrong(0))
}
