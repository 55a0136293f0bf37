//! Weights that are stored inputs first: GPTQ's and AWQ's packed codes, and what lies beside them.

use anamnesis_template::parallel::{self, Rule, Split};
use anamnesis_template::{ByteRange, Result, Runs};

use crate::Dtype;
use crate::catalog::{Catalog, Encoding, TensorInfo};

/// What a packed weight consists of, besides its bias.
const PARTS: [&str; 4] = [".qweight", ".qzeros", ".scales", ".g_idx"];

/// Whether it is a part of a weight whose codes are 32-bit words of shape `[inputs, outputs]`, one of them packed.
pub(super) fn inputs_first(catalog: &Catalog, info: &TensorInfo) -> bool {
    let Some(stem) = PARTS.iter().find_map(|part| info.name.strip_suffix(part)) else {
        return false;
    };
    let words = |info: &TensorInfo| {
        matches!(info.encoding, Encoding::Plain(Dtype::I32 | Dtype::U32)) && info.shape.len() == 2
    };
    // quanto and MLX have scales too, beside weights of the usual shape
    catalog.get(&[stem, ".qweight"].concat()).is_some_and(words)
}

/// As [`parallel::slice`], of a matrix `[inputs, outputs]` or of a vector with one element per input.
pub(super) fn slice(rule: Rule, shape: &[u64], item: u64, split: &Split) -> Result<Vec<Runs>> {
    match (rule, shape) {
        (Rule::Replicated, _) | (Rule::Row, [_, _]) => {
            let rule = if rule == Rule::Row {
                Rule::Column
            } else {
                rule
            };
            parallel::slice(rule, shape, item, split)
        }
        (Rule::Row, [_]) => parallel::slice(Rule::Column, shape, item, split),
        // outputs of one row, and the same of every other
        (_, &[inputs, outputs]) => {
            let row = parallel::slice(rule, &[outputs], item, split)?;
            let rows = u32::try_from(inputs).ok();
            let every = |runs: Runs| {
                let first = ByteRange {
                    file: 0,
                    start: runs.start,
                    len: runs.len,
                };
                Runs::strided(first, rows?, outputs.checked_mul(item)?)
            };
            match row.into_iter().map(every).collect::<Option<Vec<_>>>() {
                Some(runs) => Ok(runs.into_iter().filter(|runs| runs.len > 0).collect()),
                None => parallel::slice(Rule::Replicated, shape, item, split), // more rows than runs can count
            }
        }
        _ => parallel::slice(Rule::Replicated, shape, item, split),
    }
}
