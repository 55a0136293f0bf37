//! How an embedding is made of the states of a text: a module of sentence-transformers beside the model.
//!
//! Source: `_try_set_pooling_type` of llama.cpp's `conversion/base.py`; the numbers are `llama_pooling_type`.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::models::model_folder::ModelFolder;
use crate::read::catalog::quote;

/// Bytes of a list of modules: a few lines.
const MAX_LIST: usize = 1 << 16;

/// The number of the pooling; `None` if the model is not of sentence-transformers, or has no such module.
pub(crate) fn pooling(folder: &ModelFolder<'_>) -> Result<Option<u64>> {
    const LIST: &str = "modules.json";
    let wrong = |text: String| Error::unsupported(text).in_file(&folder.at(LIST));
    let Some(text) = folder.read(LIST)? else {
        return Ok(None);
    };
    let modules: Option<Vec<Json>> = match text.len() <= MAX_LIST {
        true => serde_json::from_slice(&text).ok(),
        false => None,
    };
    let modules = modules.ok_or_else(|| wrong("it is no list of modules".into()))?;
    let is_pooling = |module: &&Json| {
        let kind = module.get("type").and_then(Json::as_str);
        kind.is_some_and(|kind| kind.ends_with("Pooling"))
    };
    let Some(module) = modules.iter().find(is_pooling) else {
        return Ok(None);
    };
    let path = module
        .get("path")
        .and_then(Json::as_str)
        .unwrap_or_default();
    // a name in this folder, and no way out of it
    if path.is_empty() || path.starts_with('.') || path.contains(['/', '\\']) {
        return Err(wrong(format!("{} is no module beside it", quote(path))));
    }
    let name = [path, "/config.json"].concat();
    let config = folder.json(&name)?;
    let config = config.ok_or_else(|| wrong(format!("{} does not exist", quote(&name))))?;
    let is_set = |key: &str| config.get(key) == Some(&Json::Bool(true));
    let number = match config.get("pooling_mode").and_then(Json::as_str) {
        _ if is_set("pooling_mode_mean_tokens") => 1,
        _ if is_set("pooling_mode_cls_token") => 2,
        _ if is_set("pooling_mode_lasttoken") => 3,
        Some("mean") => 1,
        Some("cls") => 2,
        Some("lasttoken") => 3,
        _ => {
            let text = format!(
                "{} pools neither by the mean, the first nor the last token",
                quote(&name)
            );
            return Err(wrong(text));
        }
    };
    Ok(Some(number))
}
