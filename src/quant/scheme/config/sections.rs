//! Statements of a `config.json` about packed weights that are at none of the known places.

use serde_json::{Map, Value};

use crate::quant::settings::{is_altering, is_nothing, is_off};
use crate::read::catalog::quote;

use super::{LOCATIONS, MAX_SETTING_BYTES};

/// Words in the names of objects that describe packed weights.
static PACKING: &[&str] = &["quant", "compress", "dfloat", "sparsity", "packing"];

/// Statements that are kept.
const MAX_SECTIONS: usize = 8;

/// A statement of a `config.json` about packed weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigSection {
    /// The statement, for messages.
    pub(crate) text: String,
    /// Whether weights that are read without it could be wrong.
    pub(crate) decides: bool,
    /// Whether it concerns quantised weights only: the key may be a setting of the model's architecture.
    pub(crate) of_quantised: bool,
}

/// Words that say that weights were multiplied by a matrix before they were quantised.
static ROTATIONS: &[&str] = &[
    "rotation",
    "rotations",
    "rotate",
    "rotated",
    "hadamard",
    "hadamards",
    "quarot",
    "spinquant",
    "permutation",
    "permutations",
    "permuted",
];

/// Words beside which a transform is one of weights: many models have layers and images that are transformed.
static TRANSFORMED: &[&str] = &[
    "quant",
    "quantization",
    "weight",
    "weights",
    "online",
    "config",
];

/// Whether a name has a word that says that weights were multiplied by a matrix: `online_hadamard`, `model.rotation_matrix`,
/// and not `rotary_emb` or `transformer_layers`.
pub(crate) fn is_rotation(name: &str) -> bool {
    // all of the words below contain one of those
    if !is_altering(name) {
        return false;
    }
    // no copy in lower case: a file decides how long a name is
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let has = |list: &[&str]| {
        words().any(|word| list.iter().any(|known| known.eq_ignore_ascii_case(word)))
    };
    let transform: &[&str] = &["transform"];
    has(ROTATIONS) || name.eq_ignore_ascii_case("transform") || (has(transform) && has(TRANSFORMED))
}

/// Statements about packed weights in what is left of a configuration without its known places.
pub(super) fn sections(whole: &Map<String, Value>) -> Vec<ConfigSection> {
    let inner = whole.get("text_config").and_then(Value::as_object);
    let all = whole.iter().chain(inner.into_iter().flatten());
    let is_used = |value: &Value| !is_nothing(value) && !is_off(value);
    all.filter(|(name, value)| name.len() <= MAX_SETTING_BYTES && is_used(value))
        .filter_map(|(name, value)| section(name, value))
        .take(MAX_SECTIONS)
        .collect()
}

fn section(name: &str, value: &Value) -> Option<ConfigSection> {
    let known = LOCATIONS[0].1.contains(&name);
    let lower = name.to_ascii_lowercase();
    if known || is_rotation(name) {
        // an object at a known place was taken out, and is a setting of its own
        return Some(ConfigSection {
            text: format!("{}{} of config.json", quote(name), shown(value)),
            // MLX's section is an object, and the key is a common word
            decides: name != "quantization",
            of_quantised: true,
        });
    }
    let speaks = PACKING.iter().any(|word| lower.contains(word));
    (speaks && value.is_object()).then(|| ConfigSection {
        text: format!("the section {} of config.json", quote(name)),
        decides: is_altering(name),
        of_quantised: false,
    })
}

/// A short value, for messages.
fn shown(value: &Value) -> String {
    const MAX_BYTES: usize = 60;
    match value {
        Value::String(text) => format!(": {}", quote(&text[..text.floor_char_boundary(MAX_BYTES)])),
        Value::Bool(_) | Value::Number(_) => format!(": {value}"),
        Value::Array(_) => ", a list,".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, bool)> {
        let whole: Map<String, Value> = serde_json::from_str(text).unwrap();
        let all = sections(&whole).into_iter();
        all.map(|section| (section.text, section.decides)).collect()
    }

    #[test]
    fn words_of_rotations_are_whole_words() {
        for name in [
            "rotation",
            "use_hadamard",
            "online_hadamard",
            "quant_transform",
            "transform_config",
            "Rotation",
            "model.rotation_matrix",
            "spinquant",
        ] {
            assert!(is_rotation(name), "{name}");
        }
        for name in [
            "transformer_layers",
            "transforms",
            "num_transformer_submodules",
            "transform_layer_norm",
            "transformers_version",
            "rotary_emb",
            "partial_rotary_factor",
            "expert_layer_offset",
            "codebook_size",
            "image_transform",
        ] {
            assert!(!is_rotation(name), "{name}");
        }
    }

    #[test]
    fn statements_outside_of_the_known_places() {
        let cases = [
            (
                r#"{"rotation": true}"#,
                Some(("`rotation`: true of config.json", true)),
            ),
            (
                r#"{"text_config": {"use_hadamard": "R1"}}"#,
                Some(("`use_hadamard`: `R1` of config.json", true)),
            ),
            (
                r#"{"quantization_config": "zz"}"#,
                Some(("`quantization_config`: `zz` of config.json", true)),
            ),
            (
                r#"{"quantization_config": [{"bits": 4}]}"#,
                Some(("`quantization_config`, a list, of config.json", true)),
            ),
            (
                r#"{"dfloat11_config": {"a": 1}}"#,
                Some(("the section `dfloat11_config` of config.json", false)),
            ),
            (
                r#"{"rotation": 0, "use_hadamard": false, "permutation": null}"#,
                None,
            ),
            (
                r#"{"quantization_config": {}, "quantization": "none"}"#,
                None,
            ),
            (r#"{"transformer_layers": 4, "rotary_dim": 64}"#, None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(text, decides)| (text.to_owned(), decides));
            assert_eq!(found(text), Vec::from_iter(expected), "{text}");
        }
    }
}
