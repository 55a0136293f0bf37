//! The small files of a Hugging Face checkpoint, made from a GGUF's metadata.

use serde_json::{Map, Value as Json};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::models::config::torch_name;
use crate::models::tokenizer;

use super::model::Model;

/// The files, each with its name: `config.json`, `generation_config.json`, and the files of the tokenizer. `dtype` is the
/// dtype of the weights.
pub(in crate::models) fn files(
    model: &Model<'_>,
    dtype: Dtype,
    budget: &Budget,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![
        ("config.json".to_owned(), config(model, dtype)?),
        ("generation_config.json".to_owned(), generation(model)),
    ];
    files.extend(tokenizer::files(model.checkpoint, budget)?);
    Ok(files)
}

fn config(model: &Model<'_>, dtype: Dtype) -> Result<Vec<u8>> {
    let made = (model.conversion.config)(model)?;
    let mut keys = Map::new();
    keys.insert("architectures".into(), vec![made.class].into());
    keys.insert("model_type".into(), made.model_type.into());
    keys.extend(made.keys);
    token_ids(model, &mut keys);
    keys.insert("torch_dtype".into(), torch_name(dtype).into());
    Ok(text(&keys.into()))
}

/// The ids of the first, last and filling token.
fn token_ids(model: &Model<'_>, keys: &mut Map<String, Json>) {
    let ids = [
        ("bos_token_id", "bos"),
        ("eos_token_id", "eos"),
        ("pad_token_id", "padding"),
    ];
    for (key, token) in ids {
        let id = model.token_id(token);
        // null and not absent: the classes have ids by default
        keys.insert(key.into(), id.map_or(Json::Null, Json::from));
    }
}

fn generation(model: &Model<'_>) -> Vec<u8> {
    let mut keys = Map::new();
    token_ids(model, &mut keys);
    // here an absent key is no default of a class
    keys.retain(|_, id| !id.is_null());
    // generation ends at any of these; the configuration of the model has one
    let mut ends: Vec<u64> = ["eos", "eot", "eom"]
        .into_iter()
        .filter_map(|token| model.token_id(token))
        .collect();
    ends.sort_unstable();
    ends.dedup();
    if ends.len() > 1 {
        keys.insert("eos_token_id".into(), ends.into());
    }
    text(&keys.into())
}

fn text(json: &Json) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(json).expect("strings and numbers serialise to JSON");
    text.push(b'\n');
    text
}
