//! Names of a Hugging Face checkpoint, as the rules of an architecture know them: the rule that makes a name, read backwards.

use super::source_model::SourceModel;
use super::tensor_rules::{TensorRule, filled};

/// A name, as a rule's output matches it.
pub(super) struct MatchedOutput<'n> {
    pub(super) rule: &'static TensorRule,
    pub(super) list: &'static [TensorRule],
    pub(super) layer: Option<&'n str>,
    pub(super) expert: Option<&'n str>,
    /// `.weight`, `.bias` or nothing: the part that the patterns of the rule lack.
    pub(super) suffix: &'static str,
}

/// The rule that makes tensors of this name, in the other direction.
pub(super) fn matched<'n>(model: &SourceModel<'_>, name: &'n str) -> Option<MatchedOutput<'n>> {
    model.conversion.tensors.iter().find_map(|list| {
        let rules = list.iter().filter(|rule| !rule.is_older);
        rules.into_iter().find_map(|rule| {
            ["", ".weight", ".bias"].into_iter().find_map(|suffix| {
                let (layer, expert) = numbers(rule.output, name.strip_suffix(suffix)?)?;
                Some(MatchedOutput {
                    rule,
                    list,
                    layer,
                    expert,
                    suffix,
                })
            })
        })
    })
}

/// The layer and the expert in a name of this pattern.
fn numbers<'n>(pattern: &str, name: &'n str) -> Option<(Option<&'n str>, Option<&'n str>)> {
    let (mut layer, mut expert) = (None, None);
    let (mut pattern, mut name) = (pattern.split('.'), name.split('.'));
    loop {
        match (pattern.next(), name.next()) {
            (None, None) => return Some((layer, expert)),
            (Some(part), Some(own)) => {
                let number = !own.is_empty() && own.bytes().all(|b| b.is_ascii_digit());
                match part {
                    "{i}" if number => layer = Some(own),
                    "{e}" if number => expert = Some(own),
                    _ if part == own => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}

impl MatchedOutput<'_> {
    /// Whether the tensor is one of a stack.
    pub(super) fn is_stacked(&self) -> bool {
        self.expert.is_some() && !self.rule.stored[0].contains("{e}")
    }

    pub(super) fn layer_number(&self) -> Option<u64> {
        self.layer?.parse().ok()
    }

    /// The pattern in front of the expert's number, which the tensors of a layer's experts have in common.
    pub(super) fn module(&self) -> String {
        module(self.rule.output).to_owned()
    }

    pub(super) fn stored_names(&self) -> Vec<String> {
        stored_names(self.rule, self.suffix, self.layer, self.expert)
    }
}

pub(super) fn module(pattern: &str) -> &str {
    pattern.split("{e}").next().unwrap_or(pattern)
}

pub(super) fn stored_names(
    rule: &TensorRule,
    suffix: &str,
    layer: Option<&str>,
    expert: Option<&str>,
) -> Vec<String> {
    let whole = |pattern: &&str| filled(&[*pattern, suffix].concat(), layer, expert);
    rule.stored.iter().map(whole).collect()
}

/// The name by which rules know a tensor.
pub(super) enum UsualName {
    Known(String),
    /// A parameter that no GGUF has.
    LeftOut,
    /// A mask or a table that the configuration determines.
    Derived,
}

/// Whether a tensor is of an encoder of images or sounds: llama.cpp has them in a file of its own.
///
/// Source: `TextModel.filter_tensors` of llama.cpp's `conversion/base.py`.
pub(super) fn is_of_other_modality(name: &str) -> bool {
    const BEGINNINGS: &[&str] = &[
        "mlp",
        "vit.",
        "vpm.",
        "siglip2.",
        "conformer.",
        "merger.",
        "resampler.",
        "sound_encoder.",
        "sound_projection.",
        "speech_embeddings.",
    ];
    const PARTS: &[&str] = &[
        "visual.",
        "vision.",
        "audio.",
        "talker.",
        "vision_",
        "audio_",
        "token2wav.",
        "code2wav.",
        "projector.",
        "pre_mm_projector_norm",
        "image_newline",
        "view_seperator",
        "patch_embed",
        "patch_merger.",
        "patch_merge_mlp.",
        "model.connector.",
    ];
    BEGINNINGS.iter().any(|start| name.starts_with(start))
        || PARTS.iter().any(|part| name.contains(part))
}

impl SourceModel<'_> {
    /// The name by which rules know a tensor.
    pub(super) fn usual_name(&self, name: &str) -> UsualName {
        const DERIVED: &[&str] = &[
            ".attention.masked_bias",
            ".attention.bias",
            ".attn.masked_bias",
            ".attn.bias",
            ".rotary_emb.inv_freq",
        ];
        let writing = self.writing;
        if DERIVED.iter().any(|end| name.ends_with(end)) {
            return UsualName::Derived;
        }
        let name = name.replace("language_model.", "");
        let name = name.strip_prefix(writing.dropped_prefix).unwrap_or(&name);
        let is_omitted = writing
            .left_out
            .iter()
            .any(|omitted| match omitted.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *omitted,
            });
        if is_omitted || self.is_behind_last_layer(name) {
            return UsualName::LeftOut;
        }
        if matched(self, name).is_some() || writing.shared.contains(&name) {
            return UsualName::Known(name.to_owned());
        }
        // a class without a head saves the names of its own modules
        let inner = [writing.prefix, name].concat();
        UsualName::Known(match matched(self, &inner) {
            Some(_) => inner,
            None => name.to_owned(),
        })
    }

    /// Whether a tensor is of layers that predict further tokens, which this architecture's GGUF does not have.
    fn is_behind_last_layer(&self, name: &str) -> bool {
        let Some(layers) = self
            .config
            .layers()
            .filter(|_| self.writing.drops_further_layers)
        else {
            return false;
        };
        let layer = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split('.').next());
        layer
            .and_then(|layer| layer.parse::<u64>().ok())
            .is_some_and(|layer| layer >= layers)
    }
}
