//! JSON files beside a checkpoint whose keys are the names of its tensors or modules: they say something of each.

use std::path::Path;

use serde_json::{Map, Value};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::quant::scheme::is_configuration;
use crate::read::catalog::{Catalog, Encoding};
use crate::read::json::{JsonReader, Tree};
use crate::read::source::files::Files;

use super::short_files::short_file;

const WHAT: &str = "the files beside the checkpoint";

/// Files of clients, none of which is about tensors. An index is read where the checkpoint is opened.
static KNOWN: &[&str] = &[
    "added_tokens.json",
    "all_results.json",
    "chat_template.json",
    "eval_results.json",
    "generation_config.json",
    "merges.json",
    "model_index.json",
    "params.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "train_results.json",
    "trainer_state.json",
    "vocab.json",
    "vocabulary.json",
];

/// Longer files are logs or vocabularies, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Keys that are compared.
const MAX_KEYS: usize = 1 << 10;

/// Whether a file's name may be of a description of tensors.
pub(super) fn may_describe(name: &str) -> bool {
    name.ends_with(".json")
        && !name.ends_with(".index.json")
        && !KNOWN.contains(&name)
        && !is_configuration(name)
}

/// Whether weights of the checkpoint may be quantised. Beside others no file is read.
pub(crate) fn may_be_quantised(catalog: &Catalog) -> bool {
    // counters, positions and masks are in every model
    let is_common = |encoding: &Encoding| {
        matches!(
            encoding,
            Encoding::Plain(
                Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64 | Dtype::I64 | Dtype::BOOL
            )
        )
    };
    let mut tensors = catalog.tensors().iter();
    tensors.any(|info| !is_common(&info.encoding))
}

/// Whether the keys of a file, or those one level below, name tensors or modules. A file that cannot be read names none.
pub(super) fn names_tensors(
    files: &Files,
    path: &Path,
    catalog: &Catalog,
    budget: &Budget,
) -> Result<bool> {
    // a log of gigabytes is not read for its keys
    let Some((text, _charge)) = short_file(files, path, MAX_BYTES, budget) else {
        return Ok(false);
    };
    let Ok(text) = std::str::from_utf8(&text) else {
        return Ok(false);
    };
    budget.steps(1 + text.len() as u64 / 16, WHAT)?;
    let _tree = budget.scope();
    let reader = JsonReader::new(budget, WHAT);
    let map = match reader.parse_last(text, Tree(&reader), |_| Error::unexplained("no JSON")) {
        Ok(Value::Object(map)) => map,
        Ok(_) => return Ok(false),
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::Unexplained(_) | ErrorKind::Malformed(_)
            ) =>
        {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    let inner = map.values().filter_map(Value::as_object);
    let keys = map.keys().chain(inner.flat_map(Map::keys));
    // or a list of objects, each with a name
    let items = map.values().filter_map(Value::as_array).flatten();
    let names = items.filter_map(|item| item.get("name")?.as_str());
    let mut names = keys.map(String::as_str).chain(names).take(MAX_KEYS);
    Ok(names.any(|key| {
        catalog.position(key).is_some()
            // a word without a dot is a setting
            || (key.contains('.') && catalog.position(&[key, ".weight"].concat()).is_some())
    }))
}
