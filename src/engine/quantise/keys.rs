//! The metadata of a quantised GGUF, and what its types depend on in it.
//!
//! Source: `llama_model_quantize_impl` of llama.cpp. A key that is set again moves to the end.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::engine::convert::gguf_values;
use crate::engine::sink::GgufValue;
use crate::engine::sink::container::{HeaderValue, HeaderValues};
use crate::models::config::ModelConfig;
use crate::models::config::keys::{ConfigField, EXPERTS, HEADS, KV_HEADS, LAYERS};
use crate::models::gguf_types::{MixtureFacts, is_value};
use crate::read::format::gguf::{self, FILE_TYPE, SPLIT_KEYS};

use super::Quantise;
use super::converted::{ConvertedModel, QUANTIZATION_VERSION};

/// Bytes of a text that llama.cpp sets: its fields have 128, with the zero at the end.
pub(super) const MAX_TEXT: usize = 127;
/// llama.cpp adds this to a file type that it has guessed.
const GUESSED: u32 = 1024;

/// The keys of a file and their values.
pub(super) struct Keys {
    pub(super) values: HeaderValues,
    architecture: String,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    experts: u64,
    /// Whether they are of a converter's own file, which nothing is quantised after.
    pub(super) is_converters: bool,
}

impl Keys {
    /// The keys of a GGUF that is made of a GGUF.
    pub(super) fn of(what: &Quantise<'_>, budget: &Budget) -> Result<Self> {
        let checkpoint = &*what.weights.checkpoint;
        let mut values = gguf_values(checkpoint, budget)?;
        values.retain(|(key, _)| !SPLIT_KEYS.contains(&&**key));
        let config = ModelConfig::load(checkpoint, budget)?;
        // as far as the first layer says: later ones may have other heads
        let number = |field: &'static _| {
            let first = |list: &[serde_json::Value]| list.first()?.as_u64();
            config.number(field).or_else(|| first(config.list(field)?))
        };
        let own = |field: &'static ConfigField| {
            let architecture = config.model_type().unwrap_or_default();
            let own = what.set_number(architecture, field.gguf());
            own.or_else(|| number(field))
        };
        let heads = own(&HEADS).unwrap_or(0);
        let mut made = Self {
            architecture: config.model_type().unwrap_or_default().to_owned(),
            layers: own(&LAYERS).unwrap_or(0),
            heads,
            kv_heads: own(&KV_HEADS).unwrap_or(heads),
            experts: own(&EXPERTS).unwrap_or(0),
            is_converters: false,
            values,
        };
        made.add_own(what);
        Ok(made)
    }

    /// The keys of a GGUF that is made of a Hugging Face checkpoint, whose converter writes these.
    pub(super) fn of_converted(
        what: &Quantise<'_>,
        values: Vec<(String, GgufValue)>,
        model: &ConvertedModel,
    ) -> Self {
        let number = |field: &'static ConfigField| {
            let own = what.set_number(model.architecture, field.gguf());
            own.or_else(|| {
                let key = [model.architecture, ".", field.key(true)].concat();
                let (_, value) = values.iter().find(|(known, _)| *known == key)?;
                value.as_u32().map(u64::from)
            })
        };
        let heads = number(&HEADS).unwrap_or(0);
        let mut made = Self {
            architecture: model.architecture.to_owned(),
            layers: number(&LAYERS).unwrap_or(0),
            heads,
            kv_heads: number(&KV_HEADS).unwrap_or(heads),
            experts: number(&EXPERTS).unwrap_or(0),
            is_converters: model.form.is_whole,
            values: HeaderValues::new(),
        };
        let typed = values.into_iter();
        made.values = typed
            .map(|(key, value)| (key, HeaderValue::Gguf(value)))
            .collect();
        if !made.is_converters {
            made.add_own(what);
        }
        made
    }

    /// Sets what the quantiser sets, at the end.
    fn add_own(&mut self, what: &Quantise<'_>) {
        let values = &mut self.values;
        let (version, two) = QUANTIZATION_VERSION;
        set(values, version, GgufValue::u32(two));
        let file_type = what.file_type.map(|file_type| file_type.number);
        let stated = || {
            let value = values.iter().find(|(key, _)| key == FILE_TYPE)?;
            match &value.1 {
                HeaderValue::Gguf(value) => value.as_u32(),
                HeaderValue::Text(_) => None,
            }
        };
        let number = file_type
            .or_else(stated)
            .unwrap_or_else(|| GUESSED + what.guessed_type());
        set(values, FILE_TYPE, GgufValue::u32(number));
        for (key, value) in &what.metadata {
            set(values, key, value.clone());
        }
        if let Some(importance) = what.importance.as_ref().filter(|all| !all.is_empty()) {
            let text = |text: &str| GgufValue::text(cut(text));
            set(values, "quantize.imatrix.file", text(importance.file()));
            if let Some(dataset) = importance.dataset() {
                set(values, "quantize.imatrix.dataset", text(dataset));
            }
            let entries = u32::try_from(importance.len()).unwrap_or(u32::MAX);
            set(
                values,
                "quantize.imatrix.entries_count",
                GgufValue::u32(entries),
            );
            if importance.chunks() > 0 {
                set(
                    values,
                    "quantize.imatrix.chunks_count",
                    GgufValue::u32(importance.chunks()),
                );
            }
        }
        if !what.pruned.is_empty() {
            let left = self.layers.saturating_sub(what.pruned.len() as u64);
            let key = format!("{}.{}", self.architecture, LAYERS.gguf()[0]);
            set(
                values,
                &key,
                GgufValue::u32(u32::try_from(left).unwrap_or(u32::MAX)),
            );
        }
    }

    /// The facts that the mixture depends on, of a model whose tensors have these names.
    pub(super) fn facts<'m, 'n>(
        &'m self,
        names: impl Iterator<Item = &'n str>,
        what: &Quantise<'_>,
    ) -> Result<MixtureFacts<'m>> {
        let (mut value_tensors, mut has_output) = (0, false);
        for name in names {
            value_tensors += u64::from(is_value(name));
            has_output |= name == crate::models::gguf_types::OUTPUT;
        }
        Ok(MixtureFacts {
            architecture: &self.architecture,
            layers: self.layers,
            heads_per_kv: self.heads.checked_div(self.kv_heads).unwrap_or(0),
            experts: self.experts,
            is_70b: self.architecture == "llama"
                && self.layers == 80
                && self.heads != self.kv_heads,
            value_tensors,
            has_output,
            has_importance: what.importance.as_ref().is_some_and(|all| !all.is_empty()),
        })
    }
}

/// Sets a key, which is then the last one.
fn set(values: &mut HeaderValues, key: &str, value: GgufValue) {
    values.retain(|(known, _)| known != key);
    values.push((key.to_owned(), HeaderValue::Gguf(value)));
}

/// The beginning of a text that is too long, whole characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// The alignment of tensors that the keys state.
pub(super) fn alignment(values: &HeaderValues) -> u32 {
    let stated = values.iter().find(|(key, _)| key == gguf::ALIGNMENT);
    let stated = stated.and_then(|(_, value)| match value {
        HeaderValue::Gguf(value) => value.as_u32(),
        HeaderValue::Text(_) => None,
    });
    stated.unwrap_or(0)
}
