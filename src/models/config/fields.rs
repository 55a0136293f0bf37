//! Values of a configuration by the field, whatever the key under which it is stated.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};

use super::keys::{self, ConfigField};
use super::{MAX_LAYERS, ModelConfig};

impl ModelConfig {
    /// All fields that anamnesis reads of a model's configuration, each with the keys under which it may be stated.
    pub fn fields() -> &'static [&'static ConfigField] {
        keys::FIELDS
    }

    /// The values that are stated for a field, the one that takes precedence first.
    fn stated(&self, field: &'static ConfigField) -> impl Iterator<Item = &Json> {
        let keys = field.keys(self.is_gguf()).iter();
        keys.filter_map(|key| self.get(key))
    }

    /// The first value that is not null.
    pub(crate) fn value(&self, field: &'static ConfigField) -> Option<&Json> {
        // `null` is how transformers writes a default
        self.stated(field).find(|value| !value.is_null())
    }

    /// Whether null is stated, and nothing else.
    pub(crate) fn is_null(&self, field: &'static ConfigField) -> bool {
        self.value(field).is_none() && self.stated(field).next().is_some()
    }

    /// A number without sign.
    pub(crate) fn number(&self, field: &'static ConfigField) -> Option<u64> {
        self.stated(field).find_map(Json::as_u64)
    }

    /// A number, or the error that says which key lacks it.
    pub(crate) fn required(&self, field: &'static ConfigField) -> Result<u64> {
        self.number(field).ok_or_else(|| self.missing(field))
    }

    pub(crate) fn truth(&self, field: &'static ConfigField) -> Option<bool> {
        self.stated(field).find_map(Json::as_bool)
    }

    /// A text that is short enough to be a setting.
    pub(crate) fn setting(&self, field: &'static ConfigField) -> Option<&str> {
        self.stated(field).find_map(super::setting)
    }

    /// A list with at most [`MAX_LAYERS`] entries.
    pub(crate) fn list(&self, field: &'static ConfigField) -> Option<&[Json]> {
        let lists = self.stated(field).filter_map(Json::as_array);
        let mut short = lists.filter(|list| list.len() as u64 <= MAX_LAYERS);
        short.next().map(Vec::as_slice)
    }

    /// A number of one layer that differs from the other layers'.
    pub(crate) fn override_of(&self, layer: usize, field: &'static ConfigField) -> Option<u64> {
        let own = self.value(&keys::LAYER_OVERRIDES)?.get(layer.to_string())?;
        let keys = field.config_json().iter();
        keys.copied().find_map(|key| own.get(key)?.as_u64())
    }

    /// A number per layer: a list with an entry for each, or one number for all. `None` if nothing is stated.
    ///
    /// # Errors
    /// A list with fewer entries than layers, or one of other values than numbers.
    pub(crate) fn per_layer(
        &self,
        field: &'static ConfigField,
        layers: usize,
    ) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.stated(field).next() else {
            return Ok(None);
        };
        if let Some(one) = value.as_u64() {
            return Ok(Some(vec![one; layers]));
        }
        let numbers: Option<Vec<u64>> = self
            .list(field)
            .and_then(|list| list.iter().take(layers).map(Json::as_u64).collect());
        let numbers = numbers.filter(|list| list.len() == layers);
        numbers.map(Some).ok_or_else(|| {
            Error::malformed(format!(
                "the configuration's {} is neither a number nor a list with one number for each of {layers} layers",
                field.key(self.is_gguf())
            ))
        })
    }

    /// The one number of a field: a number, or the number that all entries of a list have that are not 0. `None` if they
    /// differ.
    pub(crate) fn uniform(&self, field: &'static ConfigField) -> Option<u64> {
        if let Some(one) = self.number(field) {
            return Some(one);
        }
        let mut numbers = self.list(field)?.iter().map(Json::as_u64);
        // layers without attention have 0 heads, which says nothing about the others
        let first = numbers.by_ref().find(|n| *n != Some(0))??;
        numbers
            .all(|n| n == Some(0) || n == Some(first))
            .then_some(first)
    }

    /// A number, or the greatest of a list with one per layer.
    pub(crate) fn greatest(&self, field: &'static ConfigField) -> Option<u64> {
        let of_list = || self.list(field)?.iter().filter_map(Json::as_u64).max();
        self.number(field).or_else(of_list)
    }

    /// The error for a field that is not stated, or of another type than its own.
    #[cold]
    pub(crate) fn missing(&self, field: &'static ConfigField) -> Error {
        let key = field.key(self.is_gguf());
        Error::malformed(format!("the configuration has no usable {key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::keys::{HEADS, KV_HEADS, LAYERS, LINEAR_HEADS};
    use super::*;

    #[test]
    fn a_number_per_layer_is_a_number_or_a_list() {
        let config = ModelConfig::from_json(
            br#"{"n_layer": 2, "n_head": [0, 3, 3], "num_kv_heads": [0, 2, 3], "linear_num_heads": [1, "2"]}"#,
        );
        let config = config.unwrap();
        assert_eq!(config.per_layer(&LAYERS, 2).unwrap(), Some(vec![2, 2]));
        assert_eq!(config.per_layer(&HEADS, 3).unwrap(), Some(vec![0, 3, 3]));
        assert_eq!(config.per_layer(&keys::HIDDEN_SIZE, 3).unwrap(), None);
        assert!(config.per_layer(&HEADS, 4).is_err());
        assert!(config.per_layer(&LINEAR_HEADS, 2).is_err());
        assert_eq!(config.uniform(&LAYERS), Some(2));
        assert_eq!(config.uniform(&HEADS), Some(3));
        assert_eq!(config.uniform(&KV_HEADS), None);
        assert_eq!(config.greatest(&KV_HEADS), Some(3));
    }

    #[test]
    fn a_nested_key_and_null_are_read() {
        let config = ModelConfig::from_json(
            br#"{"linear_attn_config": {"num_heads": 3}, "linear_num_heads": 4, "sliding_window": null}"#,
        );
        let config = config.unwrap();
        assert_eq!(config.number(&LINEAR_HEADS), Some(3));
        assert!(config.is_null(&keys::SLIDING_WINDOW) && !config.is_null(&LAYERS));
    }
}
