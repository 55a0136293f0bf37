//! Weights that are stored as `[inputs, outputs]`: the packed codes of GPTQ and AWQ, and their sibling tensors.

use anamnesis_template::Result;
use anamnesis_template::parallel::{self, AxisShare, Rule, Split};

use crate::base::kernel::Dtype;
use crate::read::catalog::{Catalog, Encoding, TensorInfo};

/// The suffixes of the tensors of a packed weight, except its bias.
const PARTS: [&str; 4] = [".qweight", ".qzeros", ".scales", ".g_idx"];

/// Whether a tensor is part of a weight whose codes are 32-bit words of shape `[inputs, outputs]`, with several codes
/// packed along one of the two.
pub(crate) fn inputs_first(catalog: &Catalog, info: &TensorInfo) -> bool {
    let Some(stem) = PARTS.iter().find_map(|part| info.name.strip_suffix(part)) else {
        return false;
    };
    let words = |info: &TensorInfo| {
        matches!(info.encoding, Encoding::Plain(Dtype::I32 | Dtype::U32)) && info.shape.len() == 2
    };
    // quanto and MLX store scales too, next to weights of shape `[outputs, inputs]`
    catalog.get(&[stem, ".qweight"].concat()).is_some_and(words)
}

/// Like [`parallel::share`], for a matrix `[inputs, outputs]` or a vector with one element per input.
pub(super) fn share(rule: Rule, shape: &[u64], split: &Split) -> Result<Option<AxisShare>> {
    match (rule, shape) {
        // inputs are the first dimension here, so that splitting by inputs takes whole stored rows
        (Rule::Row, [_] | [_, _]) => parallel::share(Rule::Column, shape, split),
        // the same outputs of every row
        (Rule::Replicated | Rule::Row, _) => parallel::share(Rule::Replicated, shape, split),
        (_, &[_, outputs]) => {
            let row = parallel::share(rule, &[outputs], split)?;
            Ok(row.map(|row| AxisShare { axis: 1, ..row }))
        }
        // an element per input
        _ => parallel::share(Rule::Replicated, shape, split),
    }
}
