//! The words and values by which a setting decides: those that say that stored numbers are not the weights themselves, and
//! those that say nothing.

use serde_json::{Map, Value};

use crate::read::catalog::metadata;

/// Whether a name says that stored numbers are not the weights themselves. It is asked of most keys and tensors: nothing is
/// copied, and the words, of which no two begin alike, are found by their first two letters.
pub(crate) fn is_altering(name: &str) -> bool {
    let name = name.as_bytes();
    name.array_windows::<2>().enumerate().any(|(at, pair)| {
        let word: &[u8] = match &[pair[0] | 0x20, pair[1] | 0x20] {
            b"ro" => b"rotat",
            b"tr" => b"transform",
            b"pe" => b"permut",
            b"co" => b"codebook",
            b"of" => b"offset",
            b"ha" => b"hadamard",
            b"sp" => b"spinquant",
            b"qu" => b"quarot",
            // random Hadamard transforms
            b"rh" => b"rht",
            _ => return false,
        };
        let part = name.get(at..at + word.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
}

/// The same in short, as words of a setting's name.
static SHORT: &[&str] = &["rot", "rots", "perm", "perms", "lut", "luts", "had"];

/// Whether the name of a setting of quantisation says in short that stored numbers are not the weights: `perm`, `lut_size`, `had_dim`.
pub(crate) fn is_short_for_altering(key: &str) -> bool {
    // an item of a list has no name
    let key = key.trim_end_matches(".*");
    let last = key.rsplit_once('.').map_or(key, |(_, last)| last);
    let mut words = last.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| SHORT.iter().any(|known| known.eq_ignore_ascii_case(word)))
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
    "rht",
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

/// Settings of architectures, which turn or permute positions, boxes and images, and no weights.
static OF_ACTIVATIONS: &[&str] = &[
    "interleaved_rotation",
    "permutation_invariant",
    "random_rotation",
    "rotate_every_two",
    "rotate_half",
    "rotated_boxes",
    "rotation_augmentation",
    "rotation_mode",
];

/// Whether a name has a word that says that weights were multiplied by a matrix: `online_hadamard`, `model.rotation_matrix`,
/// and not `rotary_emb` or `transformer_layers`.
pub(crate) fn is_rotation(name: &str) -> bool {
    // all of the words below contain one of those
    if !is_altering(name) || OF_ACTIVATIONS.contains(&name) {
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

/// Whether a key or a text inside of a value says that weights were multiplied by a matrix. A switch that is off does not.
pub(crate) fn has_rotation(value: &Value) -> bool {
    // a list of what is left, and no recursion: a file decides the depth
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) if is_rotation(text) => return true,
            Value::Array(list) => left.extend(list),
            Value::Object(map) => {
                let is_used = |(key, value): (&String, &Value)| {
                    is_rotation(key) && !is_nothing(value) && !is_off(value)
                };
                if map.iter().any(is_used) {
                    return true;
                }
                left.extend(map.values().filter(|value| !is_nothing(value)));
            }
            _ => {}
        }
    }
    false
}

/// Whether a value is null, false or empty, or an object that has nothing else, or that says that it is not in use.
pub(crate) fn is_nothing(value: &Value) -> bool {
    // a list of what is left, and no recursion: a file decides the depth
    let mut left = Vec::new();
    let mut next = Some(value);
    while let Some(value) = next {
        match value {
            Value::Null => {}
            Value::Bool(on) if !on => {}
            Value::String(text) if is_nothing_in(text) => {}
            Value::Array(list) if list.is_empty() => {}
            Value::Object(map) if is_disabled(map) => {}
            Value::Object(map) => left.extend(map.values()),
            _ => return false,
        }
        next = left.pop();
    }
    true
}

/// Whether settings say that they are not in use.
fn is_disabled(map: &Map<String, Value>) -> bool {
    let switches = ["enable", "enabled"];
    let mut said = switches.iter().filter_map(|switch| map.get(*switch));
    said.any(|on| on == &Value::Bool(false))
}

/// Whether a value says no, as some writers do in a text or a number. Null says nothing.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::String(text) => text.eq_ignore_ascii_case("false"),
        other => other.as_f64() == Some(0.0),
    }
}

/// Whether a value of the metadata says that a setting is not in use. 0 is written for false there.
pub(crate) fn says_nothing(value: &metadata::Value) -> bool {
    match value {
        metadata::Value::Null | metadata::Value::Bool(false) => true,
        metadata::Value::U64(0) | metadata::Value::I64(0) => true,
        metadata::Value::Text(text) => is_nothing_in(text),
        _ => false,
    }
}

fn is_nothing_in(text: &str) -> bool {
    let nothing = ["", "false", "none", "null", "{}", "[]", "no"];
    let text = text.trim();
    nothing.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            "use_rht",
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
            "rotate_half",
            "random_rotation",
        ] {
            assert!(!is_rotation(name), "{name}");
        }
    }

    #[test]
    fn values_that_say_nothing() {
        for value in [
            json!(null),
            json!(false),
            json!("None"),
            json!({"config_groups": {}}),
            json!({"a": {"b": null, "c": {"r1": false}}}),
            json!({"enable": false, "size": 128}),
        ] {
            assert!(is_nothing(&value), "{value}");
        }
        for value in [
            json!(0),
            json!({"a": {"b": [0]}}),
            json!({"enable": true}),
            json!({"enable": "false", "size": 128}),
        ] {
            assert!(!is_nothing(&value), "{value}");
        }
    }

    #[test]
    fn rotations_are_found_at_any_depth() {
        for value in [
            json!({"a": [{"rotation": "R1"}]}),
            json!(["x", {"type": "hadamard"}]),
        ] {
            assert!(has_rotation(&value), "{value}");
        }
        for value in [
            json!({"rotation": false, "hadamard": {"r1": null}, "a": "transformers"}),
            json!({"quantizer": ["gptqmodel:1.4"], "true_sequential": true}),
        ] {
            assert!(!has_rotation(&value), "{value}");
        }
    }
}
