//! Weights that are stored as `[inputs, outputs]`: the packed codes of GPTQ and AWQ, and their sibling tensors.

use anamnesis_template::parallel::{self, Rule, Split};
use anamnesis_template::{Result, StridedRange};

use crate::Dtype;
use crate::catalog::{Catalog, Encoding, TensorInfo};

/// The suffixes of the tensors of a packed weight, except its bias.
const PARTS: [&str; 4] = [".qweight", ".qzeros", ".scales", ".g_idx"];

/// Whether a tensor is part of a weight whose codes are 32-bit words of shape `[inputs, outputs]`, with several codes
/// packed along one of the two.
pub(super) fn inputs_first(catalog: &Catalog, info: &TensorInfo) -> bool {
    let Some(stem) = PARTS.iter().find_map(|part| info.name.strip_suffix(part)) else {
        return false;
    };
    let words = |info: &TensorInfo| {
        matches!(info.encoding, Encoding::Plain(Dtype::I32 | Dtype::U32)) && info.shape.len() == 2
    };
    // quanto and MLX store scales too, next to weights of shape `[outputs, inputs]`
    catalog.get(&[stem, ".qweight"].concat()).is_some_and(words)
}

/// As [`parallel::slice`], for a matrix `[inputs, outputs]` or a vector with one element per input.
pub(super) fn slice(
    rule: Rule,
    shape: &[u64],
    item: u64,
    split: &Split,
) -> Result<Vec<StridedRange>> {
    match (rule, shape) {
        // inputs are the first dimension here, so that splitting by inputs takes whole stored rows
        (Rule::Replicated, _) | (Rule::Row, [_, _]) => {
            let rule = if rule == Rule::Row {
                Rule::Column
            } else {
                rule
            };
            parallel::slice(rule, shape, item, split)
        }
        (Rule::Row, [_]) => parallel::slice(Rule::Column, shape, item, split),
        // the same outputs of every row
        (_, &[inputs, outputs]) => {
            let row = parallel::slice(rule, &[outputs], item, split)?;
            let every = |run: StridedRange| {
                // a template counts the runs of an access with 32 bits
                let rows = u32::try_from(inputs).ok()?;
                let stride = outputs.checked_mul(item)?;
                StridedRange::strided(run.start, run.len, rows.into(), stride)
            };
            match row.into_iter().map(every).collect::<Option<Vec<_>>>() {
                Some(runs) => Ok(runs.into_iter().filter(|runs| runs.len > 0).collect()),
                None => parallel::slice(Rule::Replicated, shape, item, split), // more rows than a template can count
            }
        }
        _ => parallel::slice(Rule::Replicated, shape, item, split),
    }
}
