//! A checkpoint in the form of Hugging Face whose class has a way into a GGUF: its configuration by keys and by fields.

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::models::config::ModelConfig;
use crate::models::config::keys::{self, ConfigField};
use crate::models::tokenizer::TokenizerFacts;
use crate::read::catalog::quote;
use crate::read::format::gguf::GgufValue;

use super::{GgufConversion, GgufWriting};

/// A model that becomes a GGUF.
#[derive(Debug)]
pub(crate) struct SourceModel<'c> {
    pub(in crate::models) config: &'c ModelConfig,
    pub(in crate::models) conversion: &'static GgufConversion,
    pub(in crate::models) writing: &'static GgufWriting,
    /// The class in transformers.
    pub(in crate::models) class: &'c str,
    /// The number of the way in which an embedding is made of the states of a text.
    pub(in crate::models) pooling: Option<u64>,
}

impl SourceModel<'_> {
    /// The value of `general.architecture`.
    pub(crate) fn name(&self) -> &'static str {
        self.conversion.name
    }

    /// Whether an output layer is written that shares the weight of the embedding.
    pub(crate) fn keeps_tied_head(&self) -> bool {
        self.writing.keeps_tied_head
    }

    /// Refuses a model that llama.cpp does not read.
    ///
    /// # Errors
    /// Such a model.
    pub(crate) fn check_readable(&self) -> Result<()> {
        (self.writing.check)(self)
    }

    /// The key with the kinds of sentences that the model tells apart, where its architecture has it.
    pub(crate) fn token_types(&self) -> Result<Option<(String, GgufValue)>> {
        let Some(stated) = self.writing.token_types else {
            return Ok(None);
        };
        let count = self.number(&[stated]).unwrap_or(1);
        let count = u32::try_from(count).map_err(|_| missing(&[stated]))?;
        let key = [keys::GGUF_TOKENIZER, "token_type_count"].concat();
        Ok(Some((key, GgufValue::u32(count))))
    }

    /// How its tokenizer is read, where `--tokenizer-pre` may name the steps before it.
    pub(crate) fn tokenizer<'a>(&self, pre: Option<&'a str>) -> TokenizerFacts<'a> {
        TokenizerFacts {
            reading: self.writing.tokenizer,
            architecture: self.conversion.name,
            vocabulary: self.config.number(&keys::VOCABULARY),
            pre,
        }
    }

    /// The first value of these keys that is not null.
    pub(in crate::models) fn value(&self, keys: &[&str]) -> Option<&Json> {
        let values = keys.iter().filter_map(|key| self.config.key(key));
        values.into_iter().find(|value| !value.is_null())
    }

    pub(in crate::models) fn number(&self, keys: &[&str]) -> Option<u64> {
        self.value(keys)?.as_u64()
    }

    pub(in crate::models) fn float(&self, keys: &[&str]) -> Option<f64> {
        self.value(keys)?.as_f64()
    }

    /// A number that the class cannot be without.
    pub(in crate::models) fn required(&self, keys: &[&str]) -> Result<u64> {
        self.number(keys).ok_or_else(|| missing(keys))
    }

    pub(in crate::models) fn required_float(&self, keys: &[&str]) -> Result<f64> {
        self.float(keys).ok_or_else(|| missing(keys))
    }

    /// A size that the class cannot be without.
    pub(in crate::models) fn needed(&self, field: &'static ConfigField) -> Result<u64> {
        self.config.required(field)
    }

    /// Attention heads.
    pub(in crate::models) fn heads(&self) -> Result<u64> {
        let heads = self.needed(&keys::HEADS)?;
        match heads {
            0 => Err(self.config.missing(&keys::HEADS)),
            heads => Ok(heads),
        }
    }

    /// Heads of keys and values: as many as of queries where none are stated.
    pub(in crate::models) fn key_value_heads(&self) -> Result<u64> {
        let stated = self.config.number(&keys::KV_HEADS);
        stated
            .filter(|heads| *heads > 0)
            .map_or_else(|| self.heads(), Ok)
    }

    /// Elements of a head: stated, or the elements of a hidden state over the heads.
    pub(in crate::models) fn head_size(&self) -> Result<u64> {
        match self.config.number(&keys::HEAD_DIM) {
            Some(size) => Ok(size),
            None => Ok(self.needed(&keys::HIDDEN_SIZE)? / self.heads()?),
        }
    }

    /// How positions are rotated: `rope_parameters` of transformers 5, or `rope_scaling` with the keys around it.
    pub(in crate::models) fn rotation(&self) -> Map<String, Json> {
        let stated = self.value(&["rope_parameters", "rope_scaling"]);
        let mut rotation = stated
            .and_then(Json::as_object)
            .cloned()
            .unwrap_or_default();
        let is_by_kind = ["full_attention", "sliding_attention"]
            .iter()
            .any(|kind| rotation.contains_key(*kind));
        if is_by_kind {
            return rotation;
        }
        let mut add = |key: &str, value: Option<Json>| {
            if let Some(value) = value.filter(|_| !rotation.contains_key(key)) {
                rotation.insert(key.to_owned(), value);
            }
        };
        let local = self.value(&[
            "local_rope_theta",
            "rope_local_theta",
            "rope_theta_local",
            "swa_rope_theta",
            "rope_local_base_freq",
        ]);
        let local = local.map(|theta| serde_json::json!({"rope_theta": theta}));
        add("sliding_attention", local);
        let theta = [
            "global_rope_theta",
            "rope_global_theta",
            "rope_theta_global",
            "rope_theta",
            "rotary_emb_base",
        ];
        add("rope_theta", self.value(&theta).cloned());
        let part = ["partial_rotary_factor", "rope_pct", "rope_percent"];
        add("partial_rotary_factor", self.value(&part).cloned());
        let original = "original_max_position_embeddings";
        add(original, self.value(&[original]).cloned());
        if let Some(kind) = rotation.get("type").cloned() {
            rotation.entry("rope_type").or_insert(kind);
        }
        rotation
    }

    /// The rotation of layers that attend to all tokens.
    pub(in crate::models) fn full_rotation(&self) -> Map<String, Json> {
        let rotation = self.rotation();
        let full = rotation.get("full_attention").and_then(Json::as_object);
        full.cloned().unwrap_or(rotation)
    }
}

#[cold]
fn missing(keys: &[&str]) -> Error {
    let key = keys.first().copied().unwrap_or_default();
    Error::malformed(format!(
        "the configuration has no usable {}, which a GGUF needs",
        quote(key)
    ))
}
