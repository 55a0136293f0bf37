//! The rule about token ids: those that a configuration names have a row in the embeddings.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::ModelConfig;
use crate::models::names::is_token_matrix;
use crate::plan::TensorSpec;
use crate::read::checkpoint::Checkpoint;

use super::check_rules;
use super::level::FindingLevel;
use super::report::Finding;

/// Finds ids of special tokens (`eos_token_id` of a config.json, `tokenizer.ggml.eos_token_id` of a GGUF; one or a list)
/// that no embedding or output layer has a row for: a program that feeds such a token reads behind the matrix.
///
/// Returns the number of ids that were compared. Where several matrices have rows of tokens, the one with the most decides. Negative ids stand for no token.
pub(super) fn compare<'o>(
    checkpoint: &Checkpoint,
    outputs: impl Iterator<Item = &'o TensorSpec>,
    budget: &Budget,
    add: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<u64> {
    let mut compared = 0;
    let rows_of = |output: &'o TensorSpec| match &output.shape[..] {
        [rows, _] if is_token_matrix(&output.name) => Some((*rows, output)),
        _ => None,
    };
    let Some((rows, matrix)) = outputs.filter_map(rows_of).max_by_key(|(rows, _)| *rows) else {
        return Ok(0);
    };
    let config = ModelConfig::load(checkpoint, budget)?;
    for (key, id) in config.token_ids() {
        compared += 1;
        if id < rows {
            continue;
        }
        let text = format!("`{key}` is {id}, and there are {rows} rows of tokens");
        let mut found = Finding::new(&check_rules::OUT_OF_RANGE, text)
            .of_tensor(&matrix.name)
            .level(FindingLevel::Warning);
        found.remedy = Some("take configuration and weights of one revision, or resize the matrix");
        #[allow(clippy::cast_precision_loss)] // to be shown
        {
            found.value = Some(id as f64);
        }
        add(found)?;
    }
    Ok(compared)
}
