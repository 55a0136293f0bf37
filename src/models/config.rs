//! A model's configuration: `config.json`, or the metadata of a GGUF, read by one type.
//!
//! Every value is of a file and may be anything: a number where a list belongs, a depth of 10¹⁸. The accessors return
//! `None` for a value of another type, and lists have at most [`MAX_LAYERS`] entries.
//!
//! Writers of models call one size by many names. The rows of [`keys`] join them; outside of `models` a size is read by
//! name ([`ModelConfig::layers`]), never by a key.

pub(crate) mod document;
mod dtype;
mod fields;
pub(crate) mod keys;
mod sizes;

use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, Limits, text_cost};
use crate::read::catalog::{Item, Value};
use crate::read::checkpoint::{Checkpoint, OpenOptions, read_of_checkpoint};
use crate::read::source::file_system::NamedPath;

pub(crate) use dtype::torch_name;
pub use keys::ConfigField;

use keys::{GGUF_TOKENIZER, GGUF_TOKENS, LANGUAGE_MODELS, TOKEN_ID};

/// Layers of a model, and entries of a list with one per layer. Published models have at most a few hundred.
pub(crate) const MAX_LAYERS: u64 = 1024;

/// Longest text that is a setting, in bytes.
// names of types and dtypes are shorter; longer texts are templates, which no rule reads
const MAX_SETTING_BYTES: usize = 256;

/// How deep the configuration of the language model may be nested: `thinker_config.text_config`.
const MAX_NESTED: usize = 3;

/// Whether a key of a configuration has the configuration of a language model.
pub(crate) fn is_language_model(key: &str) -> bool {
    LANGUAGE_MODELS.contains(&key)
}

/// A model's configuration: the entries of `config.json`, or the metadata of a GGUF.
///
/// ```
/// use anamnesis::ModelConfig;
///
/// let text = br#"{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": "?"}"#;
/// let config = ModelConfig::from_json(text)?;
/// assert_eq!(config.model_type(), Some("llama"));
/// assert_eq!(config.layers(), Some(32));
/// assert_eq!(config.hidden_size(), None); // not a number
/// assert_eq!(config.size(&["my_key", "num_hidden_layers"]), Some(32));
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

    /// Like [`read`](Self::read), with the limits and the settings for URLs of these options.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let (files, path) = options.files(path.as_ref())?;
        let map = document::read(
            &files,
            options.named(&path),
            &Budget::new(options.limits_of()),
        );
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

    /// Like [`of`](Self::of), but the configuration stays charged on the budget.
    pub(crate) fn load(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        let catalog = checkpoint.catalog();
        if let Some(model) = catalog.metadata.text(keys::MODEL_TYPE.key(true)) {
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
        let folder = files.folder_of(path);
        let at = folder.join("config.json");
        files.begin(&mut std::iter::once(at.clone()));
        let read = || match document::read(files, NamedPath::below(folder, &at), budget) {
            Ok(map) => Ok(Some(map)),
            // no configuration is usual for a single file, and a rule that needs one says so
            Err(e) if document::is_absent(files, &at, &e) => Ok(None),
            Err(e) => Err(document::unreadable(files, &at, e)),
        };
        let map = read_of_checkpoint(checkpoint, folder, Option::is_some, read)?;
        Ok(map.map(Self::from_document).unwrap_or_default())
    }

    /// From a parsed `config.json`.
    pub(crate) fn from_document(whole: Map<String, Json>) -> Self {
        let (mut language, mut outer) = (whole, Map::new());
        for _ in 0..MAX_NESTED {
            // taken out of the document and not copied: a configuration may be as large as the limit on memory allows
            let nested = LANGUAGE_MODELS.iter().find_map(|key| {
                let inside = language.get_mut(*key)?.as_object_mut()?;
                // an empty object says nothing, and would hide the entries around it
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
        config.model_type = config.setting(&keys::MODEL_TYPE).map(str::to_owned);
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
            // only their number: the texts of a vocabulary have megabytes
            if let (GGUF_TOKENS, Value::Array(tokens)) = (key, value) {
                add(key, tokens.len.into())?;
            }
            if key.starts_with(GGUF_TOKENIZER) && key.ends_with(TOKEN_ID) {
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

    /// Whether it is the metadata of a GGUF, whose keys differ from the keys of `config.json`.
    pub fn is_gguf(&self) -> bool {
        self.origin == Some("GGUF")
    }

    /// The type of the language model: `model_type`, or the architecture of a GGUF.
    pub fn model_type(&self) -> Option<&str> {
        self.model_type.as_deref()
    }

    /// The architecture of the whole model: its outermost `model_type`, or the first name of a class; the architecture of a GGUF.
    ///
    /// ```
    /// use anamnesis::ModelConfig;
    ///
    /// let text = br#"{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}"#;
    /// let config = ModelConfig::from_json(text)?;
    /// assert_eq!((config.architecture(), config.model_type()), (Some("gemma3"), Some("gemma3_text")));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn architecture(&self) -> Option<&str> {
        let mut types = keys::MODEL_TYPE.config_json().iter();
        let outermost = types.find_map(|key| setting(self.outer.get(*key)?));
        let class = || {
            let classes = self.value(&keys::CLASSES)?.as_array()?;
            setting(classes.first()?)
        };
        outermost.or_else(|| self.model_type()).or_else(class)
    }

    /// The value of a key; of the language model's entries first, where `null` is a value too. In a `config.json` a dot
    /// separates the key of an object from the key in it.
    fn get(&self, key: &str) -> Option<&Json> {
        let own = |key: &str| self.language.get(key).or_else(|| self.outer.get(key));
        match key.split_once('.') {
            Some((outer, inner)) if !self.is_gguf() => own(outer)?.get(inner),
            _ => own(key),
        }
    }

    /// The value of a key of `config.json`, which may be null.
    pub(in crate::models) fn key(&self, key: &str) -> Option<&Json> {
        self.get(key)
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
            // a model may end its texts with one of several tokens
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
        setting(self.get(key)?)
    }

    /// The boolean of a key.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// The dtype of the model that the configuration states, if it is one that weights are dequantised to.
    pub fn dtype(&self) -> Option<Dtype> {
        // transformers loads a model by the dtype that is stated outermost
        [&self.outer, &self.language]
            .into_iter()
            .find_map(dtype::stated)
    }
}

/// The text of a value, if it is short enough to be a setting.
fn setting(value: &Json) -> Option<&str> {
    value
        .as_str()
        .filter(|text| text.len() <= MAX_SETTING_BYTES)
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
}
