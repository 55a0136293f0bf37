//! The account: what is left of a checkpoint's signs of quantisation when every scheme has taken what it knows.
//!
//! Schemes recognise weights by names and shapes, and a layout that none of them knows can have the names and shapes of one
//! that they do. So planning does not end with the first claim of each tensor. A [`Weight`](super::scheme::Weight) lists the
//! stored tensors that it consumes, a row of `SCHEMES` the settings that it knows, and the keys of the metadata that a scheme
//! reads are recorded. The rest is evidence, and decides:
//!
//! | left over | result |
//! |---|---|
//! | a marker of ComfyUI that is no layer's (`markers.rs`) | quantised weights without a marker are refused |
//! | a part that the same weight of other layers has (`across_layers.rs`) | the weight is refused; in a GGUF, a warning |
//! | FP8 without a scale that other layers have (`distant_scales.rs`) | it is refused; a scale of another name is a warning (also `scale_columns.rs`) |
//! | a part in a second mapping, under the weight's own key (`parallel_mappings.rs`) | the weight is refused |
//! | a factor or a shape without codes (`orphans.rs`) | it is refused, and so are codes beside it in a dtype that no scheme reads |
//! | a quantised weight that the configuration says is none, or the reverse (`exclusions.rs`) | a warning |
//! | a scheme that the method of the configuration is none of (`claims.rs`) | the weight is refused |
//! | codes next to a scale in a tuple (`positions.rs`) | they are refused |
//! | a bias that is none by its shape (`leftovers.rs`) | the weight is refused; FP8 without scales is made, with a warning |
//! | settings of a module that is not there (`claims.rs`) | a warning |
//! | a rotation anywhere, or a scale beside floats (`alterations.rs`) | a warning |
//! | a tensor on the stem of a weight (`leftovers.rs`), but for biases and scales of activations | the weight is refused; FP8 without scales is made, with a warning |
//! | a setting that decides how bytes are read, with an unknown value (`quant/settings.rs`), or two of them that differ | every weight is refused |
//! | stored numbers other than those that the configuration states (`statements.rs`) | the weight is refused |
//! | another unknown setting, also in a marker or another descriptor of a weight | a warning |
//! | a transform of a recipe (`recipes.rs`) | every weight is refused; an order of columns without an index is a warning |
//! | a key of the metadata (`metadata.rs`), a field of a header's entry, a file beside it (`remarks.rs`, `sidecars.rs`, `described_tensors.rs`) | a warning; unclaimed integers are refused |
//! | a value of a pickle that is a scale, a marker or a configuration (`metadata.rs`, `dictionaries.rs`) | weights are refused |
//! | integers that are most of the bytes, or have scales beside them (`integers.rs`) | they are refused |
//!
//! Harmless names are a table with reasons (`harmless.rs`). With `OpenOptions::assume_plain` the refusals become warnings.
//!
//! A new scheme needs nothing here: it cannot return a weight without its parts, nor have a row without its settings. Its parts whose codes are
//! missing altogether are known by their names alone (`orphans.rs`).

mod across_layers;
mod alterations;
mod claims;
mod described_tensors;
mod dictionaries;
mod distant_scales;
mod exclusions;
mod gguf_keys;
mod harmless;
mod integers;
mod leftovers;
mod markers;
mod metadata;
mod orphans;
mod parallel_mappings;
mod positions;
mod recipes;
mod remarks;
mod scale_columns;
mod searched_words;
mod short_files;
mod sidecars;
mod statements;
mod tensor_claim;
mod unclaimed;

use serde_json::Value;

use crate::base::error::{Error, Result};
use crate::quant::scheme::{Context, method_of, settings_of};
use crate::quant::settings::{SchemeSettings, UnknownSetting, unknown_settings};
use crate::read::catalog::quote;

pub(crate) use claims::{claims, recognises_any};
pub(crate) use described_tensors::may_be_quantised;
pub(crate) use sidecars::sidecars;
use tensor_claim::Refusals;
pub(crate) use tensor_claim::TensorClaim;
pub(crate) use unclaimed::{UnclaimedTensor, classify_unclaimed};

/// AccountEvidence that concerns all stored weights.
struct AccountEvidence {
    /// A setting that decides how bytes are read, and is not known.
    deciding: Option<String>,
    /// Further unknown things, in the order in which they were found.
    remarks: Vec<String>,
    /// A file beside the checkpoint that may hold scales of its tensors.
    map: Option<String>,
    /// Weights beside which values stand that they should be read by.
    values: Refusals,
}

impl AccountEvidence {
    /// The evidence of configuration, metadata, header and files. `is_quantised`: a weight was claimed, or integers were not.
    /// Without either, texts about quantisation are about the run that trained a model.
    fn of(cx: &Context<'_>, slots: &[TensorClaim], is_quantised: bool) -> Result<Self> {
        let mut found = Self {
            deciding: None,
            remarks: Vec::new(),
            map: cx.sidecars.map.clone(),
            values: Refusals::new(),
        };
        found.configured(cx, is_quantised)?;
        if let Some(rotation) = cx.sidecars.rotation.as_ref().filter(|_| is_quantised) {
            found.decide(rotation.clone());
        }
        found.remarks.extend(cx.take_remarks());
        let described = remarks::find(cx, slots, is_quantised)?;
        if let Some(text) = described.deciding {
            found.decide(text);
        }
        found.remarks.extend(described.remarks);
        found.values = described.values;
        Ok(found)
    }

    /// The first of what is known of nothing, for the message of a refusal.
    fn first(&self) -> Option<&str> {
        let remarks = self.remarks.first().map(String::as_str);
        self.deciding.as_deref().or(remarks)
    }

    fn configured(&mut self, cx: &Context<'_>, is_quantised: bool) -> Result<()> {
        let documents = cx.config.documents();
        for (place, map) in documents.filter(|(_, map)| !map.is_empty()) {
            // the settings of configurations without a method are of the empty one
            let method = method_of(map).unwrap_or_default();
            let known: Vec<&SchemeSettings> = settings_of(&method).collect();
            if known.is_empty() {
                self.decide(format!("the method {} of {place}", quote(&method)));
                continue;
            }
            for setting in unknown_settings(map, &known, &|name| cx.has_module(name), cx.budget)? {
                let UnknownSetting {
                    key,
                    value,
                    decides,
                } = setting;
                let of_none = match map.get("quant_method") {
                    Some(Value::Null) => ", whose quant_method is null,",
                    _ => "",
                };
                let text = format!("{}: {value} of {place}{of_none}", quote(&key));
                if decides {
                    self.decide(text);
                } else {
                    self.remarks.push(text);
                }
            }
        }
        for section in cx.config.sections() {
            if section.of_quantised && !is_quantised {
                continue;
            }
            match section.decides {
                true => self.decide(section.text.clone()),
                false => self.remarks.push(section.text.clone()),
            }
        }
        Ok(())
    }

    fn decide(&mut self, text: String) {
        match self.deciding {
            None => self.deciding = Some(text),
            Some(_) => self.remarks.push(text),
        }
    }
}

/// The error for a stored tensor that cannot be explained.
fn unexplained(cx: &Context<'_>, tensor: usize, why: &str) -> Error {
    let info = cx.info(tensor);
    Error::unexplained(format!("tensor {}: {why}", quote(&info.name))).at(info.bytes.start)
}
