//! `config.json`: what most architectures have in common.

use serde_json::{Map, Value as Json, json};

use crate::base::error::Result;
use crate::models::config::keys;
use crate::read::catalog::metadata::Value;

use super::model::{Model, as_integer};

/// The configuration of a model.
#[derive(Debug)]
pub(in crate::models) struct CheckpointConfig {
    /// The class of the model in transformers.
    pub(in crate::models) class: &'static str,
    /// Its `model_type`.
    pub(in crate::models) model_type: &'static str,
    /// The other keys, in the order in which they are written.
    pub(in crate::models) keys: Map<String, Json>,
}

impl CheckpointConfig {
    pub(in crate::models) fn new(class: &'static str, model_type: &'static str) -> Self {
        Self {
            class,
            model_type,
            keys: Map::new(),
        }
    }

    pub(in crate::models) fn set(&mut self, key: &str, value: impl Into<Json>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    pub(in crate::models) fn set_some(&mut self, key: &str, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// The members of `rope_scaling`, if frequencies are scaled.
    pub(in crate::models) fn rope_scaling(&mut self) -> Option<&mut Map<String, Json>> {
        self.keys.get_mut("rope_scaling")?.as_object_mut()
    }

    /// Sizes, heads, context length, vocabulary and tied embeddings of a decoder.
    pub(in crate::models) fn decoder(
        class: &'static str,
        model_type: &'static str,
        model: &Model<'_>,
    ) -> Result<Self> {
        let mut config = Self::new(class, model_type);
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("intermediate_size", model.needed(&keys::FEED_FORWARD)?);
        config.set("num_hidden_layers", model.needed(&keys::LAYERS)?);
        config.set("num_attention_heads", model.heads(None)?);
        config.set("num_key_value_heads", model.key_value_heads(None)?);
        config.set("head_dim", model.head_size()?);
        config.set_some("max_position_embeddings", model.number(&keys::CONTEXT_MAX));
        // a GGUF has no key for it: a model without an output matrix uses the embedding's
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    }

    pub(in crate::models) fn rms_norm(&mut self, model: &Model<'_>) -> Result<()> {
        let epsilon = model.required_float("attention.layer_norm_rms_epsilon")?;
        self.set("rms_norm_eps", epsilon);
        Ok(())
    }

    /// Like [`rms_norm`](Self::rms_norm), for norms that subtract the mean, by the class's key.
    pub(in crate::models) fn layer_norm(&mut self, model: &Model<'_>, key: &str) -> Result<()> {
        self.set(key, model.required_float("attention.layer_norm_epsilon")?);
        Ok(())
    }

    /// The part of a head that is rotated.
    pub(in crate::models) fn partial_rotary(&mut self, model: &Model<'_>) -> Result<()> {
        if let (Some(rotated), head @ 1..) = (model.number(&keys::ROTATED_DIM), model.head_size()?)
        {
            #[allow(clippy::cast_precision_loss)] // the elements of a head
            self.set("partial_rotary_factor", rotated as f64 / head as f64);
        }
        Ok(())
    }

    /// Base of the rotary frequencies and their scaling.
    pub(in crate::models) fn rotary(&mut self, model: &Model<'_>) -> Result<()> {
        self.set(
            "rope_theta",
            model.float("rope.freq_base").unwrap_or(10_000.0),
        );
        self.set_some("rope_scaling", rotary_scaling(model)?);
        Ok(())
    }
}

/// The value of `rope_scaling`, if frequencies are scaled.
///
/// Keys: llama.cpp, `conversion/base.py`, `set_gguf_parameters`. Llama 3's scaling has no keys; its converter writes the
/// factor of each frequency as a tensor.
pub(in crate::models) fn rotary_scaling(model: &Model<'_>) -> Result<Option<Json>> {
    let factor = model.float("rope.scaling.factor");
    let original = model.integer("rope.scaling.original_context_length");
    match (model.text("rope.scaling.type"), factor) {
        (Some("linear"), Some(factor)) => {
            Ok(Some(json!({"rope_type": "linear", "factor": factor})))
        }
        (Some("yarn"), Some(factor)) => {
            let mut scaling = Map::new();
            scaling.insert("rope_type".into(), "yarn".into());
            scaling.insert("factor".into(), factor.into());
            let keys = [
                ("attention_factor", "rope.scaling.attn_factor"),
                ("beta_fast", "rope.scaling.yarn_beta_fast"),
                ("beta_slow", "rope.scaling.yarn_beta_slow"),
            ];
            if let Some(original) = original {
                scaling.insert("original_max_position_embeddings".into(), original.into());
            }
            for (key, stored) in keys {
                if let Some(value) = model.float(stored) {
                    scaling.insert(key.into(), value.into());
                }
            }
            Ok(Some(scaling.into()))
        }
        _ => match model.floats("rope_freqs.weight")? {
            Some(factors) => Ok(llama3_scaling(&factors, model)),
            None => Ok(None),
        },
    }
}

/// Llama 3's scaling, from the factor of each frequency.
///
/// Frequencies of long waves are divided by `factor`, frequencies of short waves are kept, and in between the inverse of the
/// divisor is linear in the inverse of the wavelength: `1 / divisor = (1 - s) / factor + s` with `s = (original / wavelength
/// - low) / (high - low)`. Two frequencies in between give the line. `original`, `low` and `high` can be scaled together
/// without changing it; `original` is 8192 in every published model.
fn llama3_scaling(factors: &[f32], model: &Model<'_>) -> Option<Json> {
    const ORIGINAL: f64 = 8192.0;
    // long waves are divided by the whole factor, so that the greatest divisor is it
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    // nothing is scaled, or the table is damaged
    if factor <= 1.0 || !factor.is_finite() {
        return None;
    }
    let base = model.float("rope.freq_base").unwrap_or(10_000.0);
    #[allow(clippy::cast_precision_loss)] // the elements of a head
    let wavelength = |i: usize| std::f64::consts::TAU * base.powf(i as f64 / factors.len() as f64);
    let smooth: Vec<(f64, f64)> = factors
        .iter()
        .enumerate()
        .filter(|(_, divisor)| **divisor > 1.0 && f64::from(**divisor) < factor)
        .map(|(i, divisor)| {
            let s = (f64::from(*divisor).recip() - factor.recip()) / (1.0 - factor.recip());
            (ORIGINAL / wavelength(i), s)
        })
        .collect();
    let (low, high) = match (smooth.first(), smooth.last()) {
        (Some(&(x0, s0)), Some(&(x1, s1))) if x0 > x1 && s0 > s1 => {
            let width = (x0 - x1) / (s0 - s1);
            let low = x0 - s0 * width;
            (low, low + width)
        }
        // fewer than two frequencies in between: the values of every published model
        _ => (1.0, 4.0),
    };
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": rounded(low),
        "high_freq_factor": rounded(high),
        "original_max_position_embeddings": 8192,
    }))
}

/// A value that was computed from F32, with the digits that it can have had.
fn rounded(value: f64) -> f64 {
    let thousandths = (value * 1e3).round() / 1e3;
    // `1.0` and `4.0` come back from F32 with rounding errors
    if (thousandths - value).abs() < 1e-4 * value.abs() {
        thousandths
    } else {
        value
    }
}

impl Model<'_> {
    /// Tokens of the vocabulary: the rows of the embedding, which may be more than the tokenizer's.
    pub(in crate::models) fn vocabulary(&self) -> Result<u64> {
        // the matrix decides: clients refuse an embedding of another size than the configuration's
        let rows = self.shape("token_embd.weight").and_then(<[u64]>::first);
        rows.copied()
            .or_else(|| self.number(&keys::VOCABULARY))
            .ok_or_else(|| self.missing_field(&keys::VOCABULARY))
    }

    /// The id of a token by its key in the tokenizer's metadata.
    pub(in crate::models) fn token_id(&self, key: &str) -> Option<u64> {
        self.value(&["tokenizer.ggml.", key, "_token_id"].concat())
            .and_then(as_integer)
    }

    /// Whether the metadata says so.
    pub(in crate::models) fn general_name_contains(&self, part: &str) -> bool {
        let is_part = |bytes: &[u8]| bytes.eq_ignore_ascii_case(part.as_bytes());
        ["general.basename", "general.name"].iter().any(|key| {
            matches!(self.value(key), Some(Value::Text(name)) if name.as_bytes().windows(part.len()).any(is_part))
        })
    }
}
