//! The keys of a GGUF that describe the architecture of a model, in the order of llama.cpp's converter.
//!
//! Source: `TextModel.set_gguf_parameters` of llama.cpp's `conversion/base.py`. A key that is set twice keeps its first place.

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::models::config::keys::{self, ConfigField};
use crate::read::catalog::quote;
use crate::read::format::gguf::{FILE_TYPE, GgufValue};

use super::source_model::SourceModel;

/// Keys and their values, in order.
#[derive(Debug)]
pub(crate) struct ArchitectureKeys {
    architecture: &'static str,
    /// The number of the file type.
    file_type: u32,
    entries: Vec<(String, GgufValue)>,
}

impl ArchitectureKeys {
    /// The keys of a model.
    ///
    /// # Errors
    /// A configuration without a value that the class needs, or with one that is not understood.
    pub(crate) fn of(model: &SourceModel<'_>, file_type: u32) -> Result<Vec<(String, GgufValue)>> {
        let mut keys = Self {
            architecture: model.name(),
            file_type,
            entries: Vec::new(),
        };
        (model.writing.keys)(model, &mut keys)?;
        Ok(keys.entries)
    }

    /// Sets a whole key.
    fn set(&mut self, key: &str, value: GgufValue) {
        match self.entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.to_owned(), value)),
        }
    }

    fn own(&mut self, key: &str, value: GgufValue) {
        let key = [self.architecture, ".", key].concat();
        self.set(&key, value);
    }

    /// Sets a key of the architecture.
    ///
    /// # Errors
    /// A number of more than 32 bits.
    pub(in crate::models) fn number(&mut self, key: &str, number: u64) -> Result<()> {
        let number = u32::try_from(number).map_err(|_| {
            let text = format!(
                "{} of the configuration for {} is no size",
                number,
                quote(key)
            );
            Error::malformed(text)
        })?;
        self.own(key, GgufValue::u32(number));
        Ok(())
    }

    /// Sets the key of a field, if there is a number for it.
    pub(in crate::models) fn field(
        &mut self,
        field: &'static ConfigField,
        number: Option<u64>,
    ) -> Result<()> {
        match number {
            Some(number) => self.number(field.key(true), number),
            None => Ok(()),
        }
    }

    /// Sets a key of the architecture.
    ///
    /// # Errors
    /// A number that no F32 is near.
    #[allow(clippy::cast_possible_truncation)] // as it is stored
    pub(in crate::models) fn float(&mut self, key: &str, number: f64) -> Result<()> {
        let stored = number as f32;
        if !stored.is_finite() {
            let text = format!("{number} of the configuration for {} is no F32", quote(key));
            return Err(Error::malformed(text));
        }
        self.own(key, GgufValue::f32(stored));
        Ok(())
    }

    pub(in crate::models) fn flag(&mut self, key: &str, flag: bool) {
        self.own(key, GgufValue::flag(flag));
    }

    pub(in crate::models) fn text(&mut self, key: &str, text: &str) {
        self.own(key, GgufValue::text(text));
    }

    /// Sets the file type.
    pub(in crate::models) fn file_type(&mut self) {
        let value = GgufValue::u32(self.file_type);
        self.set(FILE_TYPE, value);
    }

    /// The keys that most classes have in common. `head_size`: of the class, where its configuration has one.
    pub(in crate::models) fn language_model(
        &mut self,
        model: &SourceModel<'_>,
        head_size: Option<u64>,
    ) -> Result<()> {
        let groups = model.needed(&keys::KV_HEADS)?;
        self.language_model_with(model, head_size, Some(groups))
    }

    /// The same, with this number of heads of keys and values.
    pub(in crate::models) fn language_model_with(
        &mut self,
        model: &SourceModel<'_>,
        head_size: Option<u64>,
        groups: Option<u64>,
    ) -> Result<()> {
        self.number(keys::LAYERS.key(true), model.needed(&keys::LAYERS)?)?;
        for field in [
            &keys::CONTEXT_MAX,
            &keys::HIDDEN_SIZE,
            &keys::FEED_FORWARD,
            &keys::HEADS,
        ] {
            self.field(field, model.config.number(field))?;
        }
        self.field(&keys::KV_HEADS, groups)?;
        if model.value(&["is_causal"]) == Some(&Json::Bool(false)) {
            self.flag("attention.causal", false);
        }
        self.rotation(model)?;
        let (rms, mean) = (
            model.float(&["rms_norm_eps", "norm_eps"]),
            model.float(&["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]),
        );
        if let Some(epsilon) = rms {
            self.float("attention.layer_norm_rms_epsilon", epsilon)?;
        }
        match (mean, rms) {
            (Some(epsilon), _) => self.float("attention.layer_norm_epsilon", epsilon)?,
            (None, Some(_)) => {}
            // one of the two, which the classes have by default and no reader can guess
            (None, None) => drop(model.required_float(&["rms_norm_eps"])?),
        }
        for field in [&keys::EXPERTS, &keys::EXPERTS_USED] {
            self.field(field, model.config.number(field))?;
        }
        for (key, stated) in [
            ("expert_group_count", "n_group"),
            ("expert_group_used_count", "topk_group"),
        ] {
            if let Some(number) = model.number(&[stated]) {
                self.number(key, number)?;
            }
        }
        let scores = [
            "score_function",
            "scoring_func",
            "score_func",
            "moe_router_activation",
            "moe_router_activation_func",
            "expert_selection_fn",
        ];
        if let Some(function) = model.value(&scores) {
            let number = match function.as_str() {
                Some("softmax") => 1,
                Some("sigmoid") => 2,
                Some("sqrtsoftplus") => 4,
                _ => {
                    let text =
                        format!("a router with the scores {function} has no number in a GGUF");
                    return Err(Error::unsupported(text));
                }
            };
            self.number("expert_gating_func", number)?;
        }
        self.field(&keys::HEAD_DIM, head_size)?;
        self.field(&keys::VALUE_HEAD_DIM, head_size)?;
        self.file_type();
        Ok(())
    }

    /// How an embedding is made of the states of a text, where the model is one for embeddings.
    pub(in crate::models) fn pooling(&mut self, model: &SourceModel<'_>) -> Result<()> {
        match model.pooling {
            Some(number) => self.number("pooling_type", number),
            None => Ok(()),
        }
    }

    fn rotation(&mut self, model: &SourceModel<'_>) -> Result<()> {
        let (rotation, full) = (model.rotation(), model.full_rotation());
        let float = |key: &str| full.get(key).and_then(Json::as_f64);
        let factor = float("factor");
        match (full.get("rope_type").and_then(Json::as_str), factor) {
            (Some("linear"), Some(factor)) => self.scaling("linear", factor)?,
            (Some("yarn"), Some(factor)) => {
                self.scaling("yarn", factor)?;
                let original = "original_max_position_embeddings";
                let length = full.get(original).and_then(Json::as_u64);
                let length = length.ok_or_else(|| {
                    let text = format!("the scaling yarn of the configuration has no {original}");
                    Error::malformed(text)
                })?;
                self.number("rope.scaling.original_context_length", length)?;
                for (key, stated) in [
                    ("yarn_ext_factor", &["extrapolation_factor"][..]),
                    ("yarn_attn_factor", &["attention_factor", "attn_factor"]),
                    ("yarn_beta_fast", &["beta_fast"]),
                    ("yarn_beta_slow", &["beta_slow"]),
                ] {
                    if let Some(number) = stated.iter().find_map(|key| float(key)) {
                        self.float(&["rope.scaling.", key].concat(), number)?;
                    }
                }
            }
            (Some("su" | "longrope"), _) => self.text("rope.scaling.type", "longrope"),
            // a table of factors, and none at all
            (None | Some("llama3" | "default"), _) => {}
            (Some(other), _) => {
                let text = format!(
                    "the scaling {} of positions has no keys in a GGUF",
                    quote(other)
                );
                return Err(Error::unsupported(text));
            }
        }
        if rotation.contains_key("mrope_section") {
            let text = "positions in several dimensions (mrope_section) are not written to a GGUF";
            return Err(Error::unsupported(text));
        }
        if let Some(theta) = float("rope_theta") {
            self.float("rope.freq_base", theta)?;
        }
        let sliding = rotation.get("sliding_attention").and_then(Json::as_object);
        let theta = |map: &Map<String, Json>| map.get("rope_theta")?.as_f64();
        if let Some(theta) = sliding.and_then(theta) {
            self.float("rope.freq_base_swa", theta)?;
        }
        Ok(())
    }

    fn scaling(&mut self, kind: &str, factor: f64) -> Result<()> {
        self.text("rope.scaling.type", kind);
        self.float("rope.scaling.factor", factor)
    }
}
