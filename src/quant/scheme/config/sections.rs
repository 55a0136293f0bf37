//! The statements of a configuration file about packed weights: where they are, and which of them are configurations.
//!
//! Models of several parts have the configuration of each in an object of its own, at any depth: `thinker_config.text_config` of
//! Qwen-Omni, `llm_config` of InternVL. One function finds the sections, for the reader and for the writer of the output's
//! `config.json`, which leaves them out: a section that is not read is not removed.

use serde_json::map::Iter as MapIter;
use serde_json::{Map, Value};

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::is_language_model;
use crate::quant::settings::{has_rotation, is_altering, is_nothing, is_off, is_rotation};
use crate::read::catalog::quote;

use super::super::is_known_method;
use super::{CONFIG, MAX_SETTING_BYTES, method_of};

/// Keys of the sections that are configurations, of transformers and diffusers, of MLX and Mistral, and of older
/// compressed-tensors. The first takes precedence.
static SECTIONS: &[&str] = &["quantization_config", "quantization", "compression_config"];

/// Words in the names of objects that describe packed weights.
static PACKING: &[&str] = &[
    "quant", "compress", "dfloat", "sparsity", "packing", "gptq", "awq",
];

/// Keys of which a configuration has one, as opposed to the settings of a part of a model that is called `quantization`.
static TELLING: &[&str] = &[
    "quant_method",
    "quant_algo",
    "bits",
    "group_size",
    "mode",
    "format",
    "config_groups",
    "qformat_weight",
    "weight_block_size",
];

/// Words in names of settings that alter weights in some method. Models have such settings too, so that they are warnings.
static HINTS: &[&str] = &["lut", "had", "permute", "perm", "smooth", "rot"];

/// Words of stored numbers and their parts, and words by which a setting changes how these are read: `zero_point_offset`, `pre_transform`,
/// `nibble_order`. Alone, each is a word of many models.
static OF_NUMBERS: &[&str] = &[
    "zero", "zeros", "scale", "scales", "weight", "weights", "code", "codes", "nibble", "group",
    "pre", "post",
];
static READINGS: &[&str] = &[
    "offset",
    "offsets",
    "order",
    "transform",
    "transforms",
    "bits",
    "packing",
    "encoding",
    "codebook",
];

/// Settings of the numbers that are stored, which no model has.
static STORED: &[&str] = &[
    "w_bit",
    "wbits",
    "nbits",
    "weight_bits",
    "quantization_bit",
    "quantization_bits",
    "weight_scale",
    "weight_scales",
    "weight_scale_factor",
    "weights_scaled",
    "scale_inverse",
    "fp8_scale",
    "fp8_scaled",
    "smoothquant",
    "swizzled",
    "transposed",
];

/// Whether a setting of a model speaks of how its weights are stored, although the model may be said by it. `siblings`: the other settings.
fn is_hint(key: &str, siblings: &[&str]) -> bool {
    let words = || key.split(|c: char| !c.is_ascii_alphanumeric());
    let has = |list: &[&str]| {
        words().any(|word| list.iter().any(|known| known.eq_ignore_ascii_case(word)))
    };
    // models of audio have codebooks of their own, which they count
    let is_codebook = key.to_ascii_lowercase().starts_with("codebook");
    let are_counted = || {
        siblings
            .iter()
            .any(|other| *other != key && other.contains("codebook"))
    };
    has(HINTS)
        || STORED.iter().any(|known| known.eq_ignore_ascii_case(key))
        || (has(OF_NUMBERS) && has(READINGS))
        || (is_codebook && !are_counted())
}

/// Depth of the objects that sections are read from, and removed from. Qwen-Omni's has two.
pub(crate) const MAX_DEPTH: usize = 4;

/// Depth that is searched.
const MAX_SEARCHED: usize = 32;

/// Statements that are kept.
const MAX_STATEMENTS: usize = 8;

/// Configurations of one file.
const MAX_SECTIONS: usize = 16;

/// Members of one file that are removed.
const MAX_MEMBERS: usize = 64;

const WHAT: &str = "the configuration";

/// A statement of a configuration file about packed weights that is no configuration, or at none of the known places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigSection {
    /// The statement, for messages.
    pub(crate) text: String,
    /// Whether weights that are read without it could be wrong.
    pub(crate) decides: bool,
    /// Whether it concerns quantised weights only: the key may be a setting of the model's architecture.
    pub(crate) of_quantised: bool,
}

/// The sections of a configuration file.
#[derive(Debug, Default)]
pub(crate) struct FoundSections {
    /// The keys that lead to each configuration.
    pub(super) configurations: Vec<Vec<String>>,
    /// The keys that lead to each member that goes with the quantisation: the configurations, and those that say nothing.
    pub(crate) members: Vec<Vec<String>>,
    pub(super) statements: Vec<ConfigSection>,
}

impl FoundSections {
    /// The sections of a file's object. `file` is its name, for messages.
    pub(crate) fn of(whole: &Map<String, Value>, file: &str, budget: &Budget) -> Result<Self> {
        let mut search = SectionSearch {
            file,
            path: Vec::new(),
            top: whole
                .keys()
                .map(String::as_str)
                .filter(|key| key.contains("codebook"))
                .take(MAX_MEMBERS)
                .collect(),
            open: vec![OpenMembers::Map(whole.iter())],
            found: Self::default(),
            budget,
        };
        search.run()?;
        let mut found = search.found;
        // the order of precedence: by key, then by depth
        let rank = |path: &Vec<String>| {
            let key = path.last().map(String::as_str);
            let rank = SECTIONS.iter().position(|section| Some(*section) == key);
            (rank, path.len())
        };
        found.configurations.sort_by_key(rank);
        Ok(found)
    }
}

/// The members of an object or a list that are left to visit.
enum OpenMembers<'d> {
    Map(MapIter<'d>),
    List(std::slice::Iter<'d, Value>),
}

impl<'d> OpenMembers<'d> {
    fn next(&mut self) -> Option<(&'d str, &'d Value)> {
        match self {
            Self::Map(members) => members.next().map(|(key, value)| (key.as_str(), value)),
            // no key is this
            Self::List(items) => items.next().map(|value| (ITEM, value)),
        }
    }
}

/// The place of an item of a list.
const ITEM: &str = "[]";

/// A search in depth without recursion: a file decides the depth.
struct SectionSearch<'d, 'f> {
    file: &'f str,
    path: Vec<&'d str>,
    /// The keys at the top that speak of codebooks.
    top: Vec<&'d str>,
    open: Vec<OpenMembers<'d>>,
    found: FoundSections,
    budget: &'f Budget,
}

impl<'d> SectionSearch<'d, '_> {
    fn run(&mut self) -> Result<()> {
        while let Some(members) = self.open.last_mut() {
            let Some((key, value)) = members.next() else {
                self.open.pop();
                self.path.pop();
                continue;
            };
            self.budget.steps(1 + key.len() as u64 / 16, WHAT)?;
            if key.len() > MAX_SETTING_BYTES || self.consumes(key, value)? {
                continue;
            }
            let inside = match value {
                Value::Object(map) => OpenMembers::Map(map.iter()),
                Value::Array(list) => OpenMembers::List(list.iter()),
                _ => continue,
            };
            if self.open.len() <= MAX_SEARCHED {
                self.path.push(key);
                self.open.push(inside);
            }
        }
        Ok(())
    }

    /// Whether a member is a section, or a statement, into which the search does not descend.
    fn consumes(&mut self, key: &str, value: &Value) -> Result<bool> {
        let in_list = self.path.contains(&ITEM);
        if SECTIONS.contains(&key) {
            return self.section(key, value, in_list);
        }
        if is_nothing(value) || is_off(value) {
            return Ok(false);
        }
        let is_model = self.path.iter().all(|key| is_language_model(key));
        // many models have a transform of images or of values, whose settings are an object
        let is_transform = key.eq_ignore_ascii_case("transform");
        let is_of_data = is_transform && value.is_object() && !has_rotation(value);
        if is_model && is_rotation(key) && !is_of_data {
            let text = self.named(key, value);
            self.add(text, true, true)?;
            return Ok(true);
        }
        let lower = key.to_ascii_lowercase();
        let is_object = |value: &Value| value.is_object();
        let objects = match value {
            Value::Array(list) => !list.is_empty() && list.iter().all(is_object),
            one => is_object(one),
        };
        // a part of a model that quantises vectors is no section
        let is_part = lower.contains("quantizer") || lower.contains("quantiser");
        let speaks = !is_part && PACKING.iter().any(|word| lower.contains(word));
        if speaks && objects {
            let decides = is_altering(key) || has_method(value) || has_rotation(value);
            if is_model || decides {
                let text = format!("the section {}", self.named(key, &Value::Null));
                self.add(text, decides, false)?;
                return Ok(true);
            }
        }
        if self.path.is_empty() && is_hint(key, &self.top) {
            let text = self.named(key, value);
            self.add(text, false, true)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// A member at a key of sections.
    fn section(&mut self, key: &str, value: &Value, in_list: bool) -> Result<bool> {
        let is_used = !is_nothing(value) && !is_off(value);
        let map = value.as_object().filter(|_| is_used);
        let is_nested = !self.path.is_empty();
        if let Some(map) = map
            && is_nested
            && key == "quantization"
            && !TELLING.iter().any(|key| map.contains_key(*key))
        {
            // the settings of a part of the model
            return Ok(false);
        }
        let is_reached = !in_list && self.path.len() <= MAX_DEPTH;
        if is_reached {
            let mut path: Vec<String> = self.path.iter().map(|key| (*key).to_owned()).collect();
            path.push(key.to_owned());
            let bytes: usize = path.iter().map(String::len).sum();
            self.budget.text(2 * bytes + 64, WHAT)?;
            if map.is_some() && self.found.configurations.len() < MAX_SECTIONS {
                self.found.configurations.push(path.clone());
                // the explanation of weights that are copied as they are stays with them
                let method = map.and_then(method_of);
                if method.is_none_or(|method| is_known_method(&method)) {
                    self.found.members.push(path);
                }
                return Ok(true);
            }
            if self.found.members.len() < MAX_MEMBERS {
                self.found.members.push(path);
            }
        }
        if is_used {
            let text = self.named(key, value);
            // MLX's section is an object, and the key is a common word in a model's configuration
            let decides = key != "quantization" || value.is_object() || self.file != CONFIG;
            self.add(text, decides, true)?;
        }
        Ok(true)
    }

    /// A member, its value and its place, for messages.
    fn named(&self, key: &str, value: &Value) -> String {
        let parents = match &self.path[..] {
            [] => String::new(),
            path => format!(" of {}", quote(&path.join("."))),
        };
        format!("{}{}{parents} of {}", quote(key), shown(value), self.file)
    }

    fn add(&mut self, text: String, decides: bool, of_quantised: bool) -> Result<()> {
        let statements = &mut self.found.statements;
        // one that decides is never hidden by those that do not
        let is_first = decides && !statements.iter().any(|other| other.decides);
        if statements.len() < MAX_STATEMENTS || is_first {
            self.budget.text(text.len(), WHAT)?;
            statements.push(ConfigSection {
                text,
                decides,
                of_quantised,
            });
        }
        Ok(())
    }
}

/// Whether a key is one of sections that describe packed weights, by its name.
pub(super) fn is_of_packing(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    PACKING.iter().any(|word| lower.contains(word))
}

/// Whether a section names a method.
fn has_method(value: &Value) -> bool {
    let names = |value: &Value| {
        ["quant_method", "quant_algo", "checkpoint_format"]
            .iter()
            .any(|key| value.get(*key).is_some_and(|value| !is_nothing(value)))
    };
    names(value) || value.as_array().is_some_and(|list| list.iter().any(names))
}

/// A short value, for messages.
pub(super) fn shown(value: &Value) -> String {
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
    use crate::base::limits::Limits;

    fn found(text: &str) -> FoundSections {
        let whole: Map<String, Value> = serde_json::from_str(text).unwrap();
        FoundSections::of(&whole, "config.json", &Budget::new(Limits::default())).unwrap()
    }

    fn statements(text: &str) -> Vec<(String, bool)> {
        let all = found(text).statements.into_iter();
        all.map(|section| (section.text, section.decides)).collect()
    }

    #[test]
    fn configurations_are_found_at_any_depth() {
        let cases = [
            (
                r#"{"quantization_config": {"bits": 4}}"#,
                &["quantization_config"][..],
            ),
            (
                r#"{"llm_config": {"quantization_config": {"bits": 4}}}"#,
                &["llm_config.quantization_config"],
            ),
            (
                r#"{"t": {"text_config": {"quantization": {"bits": 4}}}, "quantization": {"a": 1}}"#,
                &["quantization", "t.text_config.quantization"],
            ),
            (
                r#"{"compression_config": {"a": 1}, "v": {"quantization_config": {"a": 1}}, "quantization_config": {"a": 1}}"#,
                &[
                    "quantization_config",
                    "v.quantization_config",
                    "compression_config",
                ],
            ),
            // settings of a part of the model
            (r#"{"audio": {"quantization": {"num_codebooks": 8}}}"#, &[]),
            (
                r#"{"a": {"quantization_config": {}}, "quantization_config": null}"#,
                &[],
            ),
        ];
        for (text, expected) in cases {
            let paths = found(text).configurations;
            let paths: Vec<String> = paths.iter().map(|path| path.join(".")).collect();
            assert_eq!(paths, expected, "{text}");
        }
    }

    #[test]
    fn sections_of_unknown_methods_are_not_removed() {
        let text = r#"{"quantization_config": {"quant_method": "gptq"}, "a": {"quantization_config": {"quant_method": "new"}}}"#;
        let found = found(text);
        assert_eq!(found.configurations.len(), 2);
        assert_eq!(found.members, [["quantization_config".to_owned()]]);
    }

    #[test]
    fn statements_outside_of_the_known_places() {
        let deep = (0..9).fold(
            r#"{"quantization_config": {"bits": 4}}"#.to_owned(),
            |text, _| format!(r#"{{"a": {text}}}"#),
        );
        let cases = [
            (
                r#"{"rotation": true}"#,
                Some(("`rotation`: true of config.json", true)),
            ),
            (
                r#"{"text_config": {"use_hadamard": "R1"}}"#,
                Some(("`use_hadamard`: `R1` of `text_config` of config.json", true)),
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
                r#"{"sub": [{"quantization_config": {"bits": 4}}]}"#,
                Some(("`quantization_config` of `sub.[]` of config.json", true)),
            ),
            (
                &deep,
                Some((
                    "`quantization_config` of `a.a.a.a.a.a.a.a.a` of config.json",
                    true,
                )),
            ),
            (
                r#"{"dfloat11_config": {"a": 1}}"#,
                Some(("the section `dfloat11_config` of config.json", false)),
            ),
            (
                r#"{"quantization_configs": [{"quant_method": "zz"}]}"#,
                Some(("the section `quantization_configs` of config.json", true)),
            ),
            (
                r#"{"gptq_config": {"rotation": "hadamard"}}"#,
                Some(("the section `gptq_config` of config.json", true)),
            ),
            (
                r#"{"had_dim": 64}"#,
                Some(("`had_dim`: 64 of config.json", false)),
            ),
            (
                r#"{"rotation": 0, "use_hadamard": false, "permutation": null, "spinquant_config": {"r1": false}}"#,
                None,
            ),
            (
                r#"{"quantization_config": {}, "quantization": "none"}"#,
                None,
            ),
            (
                r#"{"transformer_layers": 4, "rotary_dim": 64, "vision_config": {"rotate": true}}"#,
                None,
            ),
            (
                r#"{"codec": {"quantizer": {"codebook_dim": 8, "rotation": 1}}}"#,
                None,
            ),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(text, decides)| (text.to_owned(), decides));
            assert_eq!(statements(text), Vec::from_iter(expected), "{text}");
        }
    }
}
