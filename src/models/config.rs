//! A model's configuration: `config.json`, or the metadata of a GGUF, read by one type.
//!
//! Every value is of a file and may be anything: a number where a list belongs, a depth of 10¹⁸. The accessors return
//! `None` for a value of another type, and lists have at most [`MAX_LAYERS`] entries.

pub(crate) mod document;

use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, Limits, text_cost};
use crate::read::catalog::{Item, Value};
use crate::read::checkpoint::{Checkpoint, OpenOptions};

/// Layers of a model, and entries of a list with one per layer. Published models have at most a few hundred.
pub(crate) const MAX_LAYERS: u64 = 1 << 16;

/// Longest text that is a setting, in bytes.
const MAX_SETTING_BYTES: usize = 256;

/// The keys under which models of several modalities keep the configuration of their language model.
const LANGUAGE_MODELS: [&str; 4] = [
    "text_config",
    "language_config",
    "llm_config",
    "thinker_config",
];

/// The end of the keys of special tokens.
const TOKEN_ID: &str = "_token_id";

/// How deep the configuration of the language model may be nested: `thinker_config.text_config`.
const MAX_NESTED: usize = 3;

/// A model's configuration: the entries of `config.json`, or the metadata of a GGUF.
///
/// ```
/// use anamnesis::ModelConfig;
///
/// let text = br#"{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": "?"}"#;
/// let config = ModelConfig::from_json(text)?;
/// assert_eq!(config.model_type(), Some("llama"));
/// assert_eq!(config.size(&["num_hidden_layers", "n_layer"]), Some(32));
/// assert_eq!(config.size(&["hidden_size"]), None); // not a number
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    /// The entries of the language model.
    language: Map<String, Json>,
    /// The entries around it, where it is nested; empty otherwise.
    outer: Map<String, Json>,
    model_type: Option<String>,
    origin: Option<&'static str>,
}

impl ModelConfig {
    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// If it is not a JSON object, or needs more memory than the default [`Limits::memory`].
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let budget = Budget::new(Limits::default());
        Ok(Self::from_document(document::parse(text, &budget)?))
    }

    /// Reads a `config.json` alone, without the weights that it belongs to.
    ///
    /// # Errors
    /// I/O, and as [`from_json`](Self::from_json) within these limits.
    pub fn read(path: impl AsRef<Path>, limits: Limits) -> Result<Self> {
        Self::read_with(path, &OpenOptions::new().limits(limits))
    }

    /// As [`read`](Self::read), with the limits of these options, and what they say about URLs.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let (files, path) = options.files(path.as_ref())?;
        let map = document::read(&files, &path, &Budget::new(options.limits_of()));
        map.map(Self::from_document).map_err(|e| e.in_file(&path))
    }

    /// The configuration of a checkpoint: its GGUF metadata, or the `config.json` in its directory. Empty if there is
    /// none.
    ///
    /// # Errors
    /// A `config.json` that cannot be read or is not a JSON object; a list in a GGUF that cannot be read; a configuration
    /// over [`Limits::memory`].
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        Self::load(checkpoint, &checkpoint.budget())
    }

    /// As [`of`](Self::of); the configuration stays charged on the budget.
    pub(crate) fn load(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        let catalog = checkpoint.catalog();
        if let Some(model) = catalog.metadata.text("general.architecture") {
            return Self::from_metadata(checkpoint, model, budget);
        }
        // a directory of GGUF or NumPy files may hold the configuration of another model
        let path = checkpoint
            .path()
            .filter(|_| matches!(catalog.format, "safetensors" | "pth" | "dcp"));
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let files = checkpoint.files();
        let folder = if files.is_directory(path) {
            path
        } else {
            path.parent().unwrap_or(path)
        };
        let at = folder.join("config.json");
        files.begin(&mut std::iter::once(at.clone()));
        match document::read(files, &at, budget) {
            Ok(map) => Ok(Self::from_document(map)),
            Err(e) if document::is_absent(&e) => Ok(Self::default()),
            Err(e) => Err(e.in_file(&at)),
        }
    }

    /// From a parsed `config.json`.
    fn from_document(whole: Map<String, Json>) -> Self {
        let (mut language, mut outer) = (whole, Map::new());
        for _ in 0..MAX_NESTED {
            let nested = LANGUAGE_MODELS.iter().find_map(|key| {
                let inside = language.get_mut(*key)?.as_object_mut()?;
                (!inside.is_empty()).then(|| std::mem::take(inside))
            });
            let Some(nested) = nested else { break };
            // entries of the innermost configuration take precedence over those around it
            for (key, value) in std::mem::replace(&mut language, nested) {
                outer.insert(key, value);
            }
        }
        let mut config = Self {
            language,
            outer,
            model_type: None,
            origin: Some("config.json"),
        };
        config.model_type = config.text("model_type").map(str::to_owned);
        config
    }

    /// From the metadata of a GGUF, with the architecture's prefix removed from its keys.
    fn from_metadata(checkpoint: &Checkpoint, model: &str, budget: &Budget) -> Result<Self> {
        let what = "the configuration";
        let mut language = Map::new();
        let mut add = |key: &str, value: Json| -> Result<()> {
            budget.memory(
                text_cost(key.len()) + 3 * size_of::<(String, Json)>() as u64,
                what,
            )?;
            language.insert(key.to_owned(), value);
            Ok(())
        };
        let catalog = checkpoint.catalog();
        for (key, value) in catalog.metadata.iter() {
            if let ("tokenizer.ggml.tokens", Value::Array(tokens)) = (key, value) {
                add("vocabulary", tokens.len.into())?;
            }
            if key.starts_with("tokenizer.ggml.") && key.ends_with(TOKEN_ID) {
                add(key, json(value))?;
            }
            let own = key
                .strip_prefix(model)
                .and_then(|key| key.strip_prefix('.'));
            let Some(own) = own else { continue };
            match value {
                Value::Array(array)
                    if array.len > MAX_LAYERS || !matches!(array.item, Item::Plain(_)) => {}
                Value::Array(array) => {
                    budget.memory(array.len * size_of::<Json>() as u64, what)?;
                    if let Some(Value::List(items)) = checkpoint.metadata(key)? {
                        add(own, items.iter().map(json).collect::<Vec<_>>().into())?;
                    }
                }
                Value::Text(text) if text.len() > MAX_SETTING_BYTES => {}
                value => add(own, json(value))?,
            }
        }
        Ok(Self {
            language,
            outer: Map::new(),
            model_type: Some(model.to_owned()).filter(|name| name.len() <= MAX_SETTING_BYTES),
            origin: Some("GGUF"),
        })
    }

    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.origin.is_none()
    }

    /// Where it was read from: `config.json` or `GGUF`; `None` if there is none.
    pub fn origin(&self) -> Option<&'static str> {
        self.origin
    }

    /// Whether it is the metadata of a GGUF, whose keys differ from those of `config.json`.
    pub fn is_gguf(&self) -> bool {
        self.origin == Some("GGUF")
    }

    /// The type of the language model: `model_type`, or the architecture of a GGUF.
    pub fn model_type(&self) -> Option<&str> {
        self.model_type.as_deref()
    }

    /// The value of a key; of the language model's entries first, where `null` is a value too.
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        self.language.get(key).or_else(|| self.outer.get(key))
    }

    /// The ids of special tokens with their keys, which end in `_token_id`; a key may have several.
    pub(crate) fn token_ids(&self) -> impl Iterator<Item = (&str, u64)> {
        let keys = self.language.iter();
        let around = self.outer.iter();
        let around = around.filter(|(key, _)| !self.language.contains_key(*key));
        let ids = keys
            .chain(around)
            .filter(|(key, _)| key.ends_with(TOKEN_ID));
        ids.flat_map(|(key, value)| {
            let several = value.as_array().map_or(&[][..], Vec::as_slice);
            let all = value.as_u64().into_iter();
            let all = all.chain(several.iter().filter_map(Json::as_u64));
            all.map(move |id| (key.as_str(), id))
        })
    }

    /// The first of these keys that is a number without sign.
    pub fn size(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| self.get(key)?.as_u64())
    }

    /// The text of a key, if it is no longer than 256 bytes.
    pub fn text(&self, key: &str) -> Option<&str> {
        let text = self.get(key)?.as_str()?;
        (text.len() <= MAX_SETTING_BYTES).then_some(text)
    }

    /// The boolean of a key.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// The list of a key, if it has at most 65,536 entries.
    pub(crate) fn list(&self, key: &str) -> Option<&[Json]> {
        let list = self.get(key)?.as_array()?;
        (list.len() as u64 <= MAX_LAYERS).then_some(list)
    }

    /// A number per layer: a list with an entry for each, or one number for all. `None` without such a key.
    ///
    /// # Errors
    /// A list with fewer entries than layers, or one of other values than numbers.
    pub(crate) fn per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        if let Some(one) = value.as_u64() {
            return Ok(Some(vec![one; layers]));
        }
        let numbers: Option<Vec<u64>> = self
            .list(key)
            .and_then(|list| list.iter().take(layers).map(Json::as_u64).collect());
        let numbers = numbers.filter(|list| list.len() == layers);
        numbers.map(Some).ok_or_else(|| {
            Error::malformed(format!(
                "the configuration's {key} is neither a number nor a list with one number for each of {layers} layers"
            ))
        })
    }

    /// The one number of a key: a number, or that of all entries of a list that are not 0. `None` if they differ.
    pub(crate) fn uniform(&self, key: &str) -> Option<u64> {
        if let Some(one) = self.size(&[key]) {
            return Some(one);
        }
        let mut numbers = self.list(key)?.iter().map(Json::as_u64);
        let first = numbers.by_ref().find(|n| *n != Some(0))??;
        numbers
            .all(|n| n == Some(0) || n == Some(first))
            .then_some(first)
    }

    /// The dtype of the model that the configuration states, if it is one that weights are dequantised to.
    pub fn dtype(&self) -> Option<Dtype> {
        [&self.language, &self.outer]
            .into_iter()
            .find_map(stated_dtype)
    }

    /// The longest context that the model was made for, in tokens.
    pub fn context_max(&self) -> Option<u64> {
        self.size(&[
            "max_position_embeddings",
            "context_length",
            "n_positions",
            "max_target_positions",
            "model_max_length",
            "max_seq_len",
            "seq_length",
        ])
    }
}

/// The dtype that an object of a configuration states.
pub(crate) fn stated_dtype(map: &Map<String, Json>) -> Option<Dtype> {
    // of transformers 5, and of earlier versions
    let name = map
        .get("dtype")
        .or_else(|| map.get("torch_dtype"))?
        .as_str()?;
    match name.strip_prefix("torch.").unwrap_or(name) {
        "bfloat16" => Some(Dtype::BF16),
        "float16" | "half" => Some(Dtype::F16),
        "float32" | "float" => Some(Dtype::F32),
        _ => None,
    }
}

/// A metadata value as JSON. A number that JSON does not have, and a nested list, is `null`.
fn json(value: &Value) -> Json {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::U64(n) => (*n).into(),
        Value::I64(n) => (*n).into(),
        Value::F32(n) => f64::from(*n).into(),
        Value::F64(n) => (*n).into(),
        Value::Text(text) => (&**text).into(),
        _ => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::ModelConfig;

    #[test]
    fn the_nested_language_model_takes_precedence() {
        let text = br#"{"model_type": "omni", "hidden_size": 1, "thinker_config": {"model_type": "t", "text_config":
            {"model_type": "text", "hidden_size": 64, "sliding_window": null}}, "sliding_window": 7, "dtype": "bfloat16"}"#;
        let config = ModelConfig::from_json(text).unwrap();
        assert_eq!(config.model_type(), Some("text"));
        assert_eq!(config.size(&["hidden_size"]), Some(64));
        assert_eq!(config.size(&["sliding_window"]), None);
        assert_eq!(config.dtype(), Some(crate::base::kernel::Dtype::BF16));
    }

    #[test]
    fn a_number_per_layer_is_a_number_or_a_list() {
        let config =
            ModelConfig::from_json(br#"{"a": 2, "b": [0, 3, 3], "c": [1, "2"], "d": [0, 2, 3]}"#);
        let config = config.unwrap();
        assert_eq!(config.per_layer("a", 2).unwrap(), Some(vec![2, 2]));
        assert_eq!(config.per_layer("b", 3).unwrap(), Some(vec![0, 3, 3]));
        assert_eq!(config.per_layer("none", 3).unwrap(), None);
        assert!(config.per_layer("b", 4).is_err() && config.per_layer("c", 2).is_err());
        assert_eq!(
            ["a", "b", "c", "d", "none"].map(|key| config.uniform(key)),
            [Some(2), Some(3), None, None, None]
        );
    }
}
