//! The recipe of llm-compressor beside a checkpoint: the modifiers that made it, as YAML.
//!
//! A recipe is no configuration, and a model is read without it. But transforms that it applies are lost where the
//! `transform_config` of `config.json` was lost, and then nothing else says that weights are rotated. In the same way an `actorder`
//! may be all that says that the columns of a group are not consecutive, where the index of the columns was lost.
//!
//! Source: llm-compressor 0.14, `modifiers/transform/{quip,spinquant}/base.py`, `recipe/recipe.py`.

use std::path::Path;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::quant::settings::is_rotation;
use crate::read::source::files::Files;

use super::short_files::short_file;

const WHAT: &str = "the recipe beside the checkpoint";

/// Longer files are logs, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Words in the names of modifiers that multiply weights by matrices.
static MODIFIERS: &[&str] = &[
    "quip",
    "spinquant",
    "quarot",
    "transform",
    "rotat",
    "hadamard",
];

/// Whether a file of this name is a recipe.
pub(super) fn is_recipe(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_yaml = lower.ends_with(".yaml") || lower.ends_with(".yml");
    is_yaml && lower.starts_with("recipe")
}

/// The statements of a recipe about stored weights. A file that cannot be read says nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RecipeStatements {
    /// The first word that says that weights were multiplied by a matrix.
    pub(super) rotation: Option<String>,
    /// The first value of `actorder` by which the columns of groups are not consecutive.
    pub(super) act_order: Option<String>,
}

pub(super) fn statements(files: &Files, path: &Path, budget: &Budget) -> Result<RecipeStatements> {
    let Some((text, _charge)) = short_file(files, path, MAX_BYTES, budget) else {
        return Ok(RecipeStatements::default());
    };
    budget.steps(1 + text.len() as u64 / 16, WHAT)?;
    Ok(RecipeStatements::of(&String::from_utf8_lossy(&text)))
}

impl RecipeStatements {
    /// The statements of a YAML text. Names of modifiers and settings are searched, and no tree is made of the text.
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        // the names of modules in lists are no settings
        let lines = text
            .lines()
            .map(|line| line.split(" #").next().unwrap_or(line));
        let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        for line in lines {
            let mut rest = line;
            while let Some(start) = rest.find(is_of_name) {
                let end = rest[start..].find(|c| !is_of_name(c));
                let end = end.map_or(rest.len(), |end| start + end);
                let word = &rest[start..end];
                rest = &rest[end..];
                found.add(word, rest);
            }
        }
        found
    }

    /// Adds a word in front of the rest of its line.
    fn add(&mut self, word: &str, rest: &str) {
        let lower = word.to_ascii_lowercase();
        let is_modifier = lower.ends_with("modifier")
            && MODIFIERS.iter().any(|modifier| lower.contains(modifier));
        // a setting, and not a value such as the name of a module
        let is_setting = rest.trim_start().starts_with(':');
        if self.rotation.is_none()
            && (is_modifier || (is_setting && is_rotation(word)))
            && !is_off(rest, is_modifier)
        {
            self.rotation = Some(word.to_owned());
        }
        if self.act_order.is_none() && lower == "actorder" && is_setting {
            let value = rest.trim_start_matches([' ', ':', '\'', '"']);
            let end = value.find(|c| !is_of_name(c)).unwrap_or(value.len());
            let value = value[..end].to_ascii_lowercase();
            let orders = ["group", "dynamic", "true"];
            self.act_order = orders.contains(&&*value).then_some(value);
        }
    }
}

/// Whether the value behind a name is none. A modifier with `{}` has all of its defaults.
fn is_off(rest: &str, is_modifier: bool) -> bool {
    let value = rest.trim_start_matches([' ', ':', '\'', '"']);
    let nothing = ["null", "~", "false", "none"];
    let empty: &[&str] = if is_modifier { &[] } else { &["[]", "{}"] };
    let is = |word: &&str| {
        value
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    rest.starts_with(':') && nothing.iter().chain(empty).any(is)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::RecipeStatements;

    fn rotating_word(text: &str) -> Option<String> {
        RecipeStatements::of(text).rotation
    }

    #[test]
    fn words_of_recipes() {
        let quip = "quant_stage:\n  quant_modifiers:\n    QuIPModifier:\n      rotations: [u, v]\n";
        assert_eq!(rotating_word(quip).as_deref(), Some("QuIPModifier"));
        let cases = [
            (
                "- SpinQuantModifier: {rotations: [R1, R2]}",
                Some("SpinQuantModifier"),
            ),
            ("    QuIPModifier: {}", Some("QuIPModifier")),
            ("  rotations: [R4]", Some("rotations")),
            ("  rotations: {}", None),
            ("  rotations: null\n  hadamard: false", None),
            (
                "# QuIPModifier was not used\nGPTQModifier:\n  ignore: ['re:.*rotation.*', lm_head]",
                None,
            ),
            (
                "AWQModifier:\n  mappings:\n  - smooth_layer: 're:.*input_layernorm'",
                None,
            ),
            ("model: transformers.AutoModel # hadamard: true", None),
        ];
        for (text, expected) in cases {
            assert_eq!(rotating_word(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn orders_of_recipes() {
        for (text, expected) in [
            ("  GPTQModifier:\n    actorder: group", Some("group")),
            (
                "- GPTQModifier: {actorder: 'dynamic', scheme: W4A16}",
                Some("dynamic"),
            ),
            ("  actorder: static", None),
            ("  actorder: null", None),
            ("  # actorder: group", None),
            ("  targets: [actorder]", None),
        ] {
            let found = RecipeStatements::of(text).act_order;
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
