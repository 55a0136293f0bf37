//! Names of tensors and modules in configurations and metadata, after a rename.
//!
//! Lists of modules that are not quantised, settings of single modules, and descriptions of single weights refer to tensors by
//! name. Where a prefix changes in the tensors alone, the flags of layers are lost without a word. Everything else of a text is
//! kept byte for byte.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::quant::scheme::{
    COMFYUI_HEADER, MAX_DEPTH, MODULE_LISTS, QUANTISATION_SECTIONS, SKIPPED_LISTS,
};
use crate::read::checkpoint::PIECE_PLACES;
use crate::read::json::edit::{JsonMembers, NotJson, texts_of_array};
use crate::read::rename::RenamedTensors;

use super::names::CONFIGURATIONS;

const WHAT: &str = "the configuration";

/// The text of a configuration file of this name, in which tensors and modules have their new names.
pub(crate) fn renamed_configuration(
    file: &str,
    text: &[u8],
    names: &RenamedTensors<'_>,
    budget: &Budget,
) -> Result<Vec<u8>> {
    let Ok(text) = std::str::from_utf8(text) else {
        // no client reads it, and nothing in it is a name
        return Ok(text.to_vec());
    };
    let mut edits = TextEdits {
        text,
        names,
        budget,
        edits: Vec::new(),
    };
    // others are sections of quantisation themselves
    edits.object(0, !CONFIGURATIONS.contains(&file), 0)?;
    Ok(edits.applied().into_bytes())
}

/// The text of an index of shards, in which tensors have their new names.
pub(crate) fn renamed_index(
    text: &[u8],
    names: &RenamedTensors<'_>,
    budget: &Budget,
) -> Result<Vec<u8>> {
    let malformed = |at: usize| Error::malformed("the index is not JSON").at(at as u64);
    let text = std::str::from_utf8(text).map_err(|e| malformed(e.valid_up_to()))?;
    let mut edits = TextEdits {
        text,
        names,
        budget,
        edits: Vec::new(),
    };
    for member in JsonMembers::of(text, 0).ok_or_else(|| malformed(0))? {
        let member = member.map_err(|NotJson(at)| malformed(at))?;
        if member.name == "weight_map" {
            edits.tensors(member.value.start, "the index")?;
        }
    }
    Ok(edits.applied().into_bytes())
}

/// Metadata of a safetensors header, in which tensors and modules have their new names.
pub(crate) fn renamed_metadata(
    key: &str,
    value: &str,
    names: &RenamedTensors<'_>,
    budget: &Budget,
) -> Result<(String, String)> {
    let mut edits = TextEdits {
        text: value,
        names,
        budget,
        edits: Vec::new(),
    };
    if key == COMFYUI_HEADER {
        // `layers` has a module for a key
        edits.object(0, true, 0)?;
    } else if MODULE_LISTS.contains(&key) {
        edits.list(0)?;
    } else if key == PIECE_PLACES {
        edits.tensors(0, "the text of DCP_SHARDING_INFO")?;
    } else if let Some(alias) = names.alias(key, value) {
        return Ok(alias);
    }
    // torchao describes a weight under its name; other keys have dots too, and a weight outside of modules has none
    let is_description = value.starts_with('{') && value.contains("\"_type\"");
    let new_key = match key.contains('.') || is_description {
        true => names.renamed_tensor(key, budget)?,
        false => None,
    };
    Ok((new_key.unwrap_or_else(|| key.to_owned()), edits.applied()))
}

/// Names in a JSON text that are replaced.
struct TextEdits<'t> {
    text: &'t str,
    names: &'t RenamedTensors<'t>,
    budget: &'t Budget,
    /// In the order of the text.
    edits: Vec<(Range<usize>, String)>,
}

impl TextEdits<'_> {
    /// The object that begins at `start`; another value is left alone. `in_section`: whether it describes quantisation.
    fn object(&mut self, start: usize, in_section: bool, depth: usize) -> Result<()> {
        let text = self.text;
        let malformed = |NotJson(at): NotJson| {
            Error::malformed("the configuration is not JSON")
                .in_format("config")
                .at(at as u64)
        };
        let Some(members) = JsonMembers::of(text, start) else {
            return Ok(());
        };
        for member in members {
            let member = member.map_err(malformed)?;
            let key = &*member.name;
            if in_section && (SKIPPED_LISTS.contains(&key) || MODULE_LISTS.contains(&key)) {
                self.list(member.value.start)?;
                continue;
            }
            if in_section && let Some(new) = self.names.renamed(key, self.budget)? {
                let quoted = quoted(text, member.whole.start, &member.value);
                self.replace(quoted, &new)?;
            }
            if text[member.value.clone()].starts_with('{') && depth < MAX_DEPTH {
                let is_section = in_section || QUANTISATION_SECTIONS.contains(&key);
                self.object(member.value.start, is_section, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The object that begins at `start`, whose keys are names of tensors.
    fn tensors(&mut self, start: usize, what: &str) -> Result<()> {
        let text = self.text;
        let malformed =
            |NotJson(at): NotJson| Error::malformed(format!("{what} is not JSON")).at(at as u64);
        let members = JsonMembers::of(text, start);
        for tensor in members.ok_or_else(|| malformed(NotJson(start)))? {
            let tensor = tensor.map_err(malformed)?;
            if let Some(new) = self.names.tensor(&tensor.name) {
                let quoted = quoted(text, tensor.whole.start, &tensor.value);
                self.replace(quoted, &new)?;
            }
        }
        Ok(())
    }

    /// The list of names that begins at `start`. Regular expressions stay.
    fn list(&mut self, start: usize) -> Result<()> {
        let found = texts_of_array(self.text, start);
        let malformed =
            |NotJson(at): NotJson| Error::malformed("a list of modules is not JSON").at(at as u64);
        for range in found.map_err(malformed)? {
            let Ok(name) = serde_json::from_str::<String>(&self.text[range.clone()]) else {
                continue;
            };
            if name.starts_with("re:") {
                continue;
            }
            if let Some(new) = self.names.renamed(&name, self.budget)? {
                self.replace(range, &new)?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, range: Range<usize>, name: &str) -> Result<()> {
        let quoted = serde_json::to_string(name).expect("a string serialises to JSON");
        self.budget.text(quoted.len(), WHAT)?;
        self.budget.push(&mut self.edits, (range, quoted), WHAT)
    }

    /// The text with the edits.
    fn applied(self) -> String {
        let (mut out, mut kept) = (String::with_capacity(self.text.len()), 0);
        for (range, with) in self.edits {
            out.push_str(&self.text[kept..range.start]);
            out.push_str(&with);
            kept = range.end;
        }
        out.push_str(&self.text[kept..]);
        out
    }
}

/// The range of a member's name with its quotes: to the last quote in front of the value.
fn quoted(text: &str, start: usize, value: &Range<usize>) -> Range<usize> {
    let front = &text[start..value.start];
    // between the name and the value are blanks and a colon
    let end = front.rfind('"').map_or(front.len(), |at| at + 1);
    start..start + end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::Limits;
    use crate::read::rename::{Rename, Renames};

    #[test]
    fn lists_and_keys_follow_a_rename_and_the_rest_stays() {
        let renames = Renames::new(&[Rename::new("model", "net.model")]);
        let tensors = ["model.a.weight", "model.b.weight", "lm_head.weight"];
        let names = RenamedTensors::new(tensors.into_iter(), &renames);
        let budget = Budget::new(Limits::default());
        let edit = |file: &str, text: &str| {
            let edited = renamed_configuration(file, text.as_bytes(), &names, &budget);
            String::from_utf8(edited.unwrap()).unwrap()
        };
        let text = r#"{"model": "model.a", "eps":1e-05, "quantization_config": {"ignore": ["lm_head",
            "model.a", "re:model.*"], "bits": 4, "model.b" : {"bits": 8}, "config_groups": {"g": {"targets": ["Linear", "model.b"]}}},
            "x": NaN}"#;
        let expected = text
            .replace(r#""model.a", "re"#, r#""net.model.a", "re"#)
            .replace(r#""model.b" "#, r#""net.model.b" "#)
            .replace(r#""model.b"]"#, r#""net.model.b"]"#);
        assert_eq!(edit("config.json", text), expected);
        let whole = r#"{"quantization": {"exclude_modules": ["model.b"]}, "model.a": {"weights": "qint8"}}"#;
        assert_eq!(
            edit("quanto_qmap.json", whole),
            whole.replace("\"model.", "\"net.model.")
        );
        let (key, value) = renamed_metadata("model.a.weight", "{}", &names, &budget).unwrap();
        assert_eq!((&*key, &*value), ("net.model.a.weight", "{}"));
        let (_, value) = renamed_metadata(
            "tensor_names",
            r#"["model.a.weight", "lm_head.weight"]"#,
            &names,
            &budget,
        )
        .unwrap();
        assert_eq!(value, r#"["net.model.a.weight", "lm_head.weight"]"#);
        let places = r#"{"model.a.weight": {"saved_offsets": [0, 0]}, "lm_head.weight": {}}"#;
        let (_, value) = renamed_metadata(PIECE_PLACES, places, &names, &budget).unwrap();
        assert_eq!(value, places.replace("model.a", "net.model.a"));
        // `safetensors.torch.save_model`: a name that shares the values of a stored tensor
        let alias = renamed_metadata("model.tied.weight", "model.a.weight", &names, &budget);
        assert_eq!(
            alias.unwrap(),
            (
                "net.model.tied.weight".to_owned(),
                "net.model.a.weight".to_owned()
            )
        );
        let other = renamed_metadata("note", "model.a", &names, &budget).unwrap();
        assert_eq!((&*other.0, &*other.1), ("note", "model.a"));
    }
}
