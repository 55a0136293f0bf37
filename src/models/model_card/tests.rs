//! The keys against gguf-py's, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::*;
use crate::base::limits::{Budget, Limits};
use crate::read::checkpoint::Checkpoint;

/// A directory that ends with the test.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(test: &str) -> Self {
        let name = format!("anamnesis-card-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The keys of a model of this name, with these files.
    fn keys(
        &self,
        name: &str,
        files: &[(&str, &str)],
        counts: &ParameterCounts,
        limits: Limits,
    ) -> Result<Vec<(String, GgufValue)>> {
        let folder = self.0.join(name);
        fs::create_dir(&folder).unwrap();
        let empty = b"\x08\0\0\0\0\0\0\0{}      ";
        fs::write(folder.join("model.safetensors"), empty).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let budget = Budget::new(limits);
        let model = ModelFolder::of(&checkpoint, &budget).unwrap();
        let keys = general_keys(&model, counts);
        fs::remove_dir_all(&folder).unwrap();
        keys
    }

    /// The error of a model with this card.
    fn refusal(&self, card: &str, limits: Limits) -> String {
        let counts = ParameterCounts::default();
        let refused = self.keys("m", &[("README.md", card)], &counts, limits);
        refused.unwrap_err().to_string()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A key as the table has it.
fn written(key: &Json) -> (String, GgufValue) {
    let (kind, value) = (key[1].as_str().unwrap(), &key[2]);
    let text = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let value = GgufValue::parse_named(kind, &text).unwrap().unwrap();
    (key[0].as_str().unwrap().to_owned(), value)
}

#[test]
fn the_keys_are_those_of_the_converter() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/model_card/cases.json");
    let cases: Vec<Json> = serde_json::from_slice(&fs::read(table).unwrap()).unwrap();
    let scratch = ScratchFolder::new("cases");
    let mut wrong = Vec::new();
    let mut refused = 0;
    for case in &cases {
        let counts: Vec<u64> = serde_json::from_value(case["counts"].clone()).unwrap();
        let counts = ParameterCounts {
            total: counts[0],
            shared: counts[1],
            expert: counts[2],
            experts: counts[3],
        };
        let files = case["files"].as_object().unwrap();
        let files = files
            .iter()
            .map(|(name, text)| (&**name, text.as_str().unwrap()));
        let files: Vec<(&str, &str)> = files.collect();
        let name = case["name"].as_str().unwrap();
        let found = scratch.keys(name, &files, &counts, Limits::default());
        let is_right = match (&found, case["keys"].as_array()) {
            (Ok(found), Some(keys)) => *found == keys.iter().map(written).collect::<Vec<_>>(),
            // where the converter fails
            (Err(_), None) => true,
            _ => false,
        };
        refused += usize::from(found.is_err());
        if !is_right {
            wrong.push(format!("{case}\n  found {found:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert!(
        cases.len() > 60 && refused > 10,
        "{} {refused}",
        cases.len()
    );
}

#[test]
fn errors_name_the_file_and_the_key() {
    let scratch = ScratchFolder::new("errors");
    let refusal = |card| scratch.refusal(card, Limits::default());
    let error = refusal("---\nversion: 1.0\n---\n");
    assert!(
        error.contains("README.md") && error.contains("version is a number"),
        "{error}"
    );
    let error = refusal("---\na: 1\nb: *c\n---\n");
    assert!(
        error.contains("line 2 of the front matter: *`c`"),
        "{error}"
    );
    let error = refusal("---\nlanguage: [en, no]\n---\n");
    assert!(
        error.contains("languages has a text and true or false"),
        "{error}"
    );
    let counts = ParameterCounts::default();
    let files = [("generation_config.json", r#"{"top_k": 1.5}"#)];
    let error = scratch
        .keys("m", &files, &counts, Limits::default())
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("generation_config.json") && error.contains("top_k"),
        "{error}"
    );
}

#[test]
fn names_that_depend_on_pythons_tables_are_refused() {
    let scratch = ScratchFolder::new("names");
    let counts = ParameterCounts::default();
    for name in [
        "stra\u{df}e-7b",
        "foo-\u{663}b",
        "\u{1c6}",
        "k\u{131}rm",
        "\u{212a}-7B",
        "\u{fffd}",
    ] {
        let error = scratch
            .keys(name, &[], &counts, Limits::default())
            .unwrap_err();
        let is_named = error.to_string().contains("character") || name == "\u{fffd}";
        assert!(is_named && error.path().is_some(), "{name}: {error}");
    }
    let long = format!("---\nbase_model: {}\n---\n", "a-7b-".repeat(1000));
    assert!(
        scratch
            .refusal(&long, Limits::default())
            .contains("5000 bytes")
    );
}

#[test]
fn hostile_cards_are_refused_within_the_limits() {
    let scratch = ScratchFolder::new("hostile");
    let deep = format!("---\na: {}\n", "[".repeat(100_000));
    assert!(scratch.refusal(&deep, Limits::default()).contains("depth"));
    assert!(
        scratch
            .refusal(&deep, Limits::none())
            .contains("deeper than 128")
    );
    // a tag at which the parser panics
    assert!(
        scratch
            .refusal("---\na: [!x, b]\n---\n", Limits::default())
            .contains('!')
    );
    let steps = Limits {
        steps: 1000,
        ..Limits::default()
    };
    let long = format!("---\na:\n{}", "- b\n".repeat(1000));
    assert!(scratch.refusal(&long, steps).contains("steps"));
    let memory = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let large = format!("---\na:\n{}", "- b\n".repeat(10_000));
    assert!(scratch.refusal(&large, memory).contains("memory"));
    // each list has the one before ten times: nothing is copied
    let mut bomb = "---\nl0: &l0 [a]\n".to_owned();
    for level in 1..40 {
        let items = vec![format!("*l{}", level - 1); 10].join(", ");
        bomb += &format!("l{level}: &l{level} [{items}]\n");
    }
    bomb += "tags: *l0\nbase_model: *l39\n---\n";
    let counts = ParameterCounts::default();
    let keys = scratch.keys("m", &[("README.md", &bomb)], &counts, Limits::default());
    let keys = keys.unwrap();
    let count = keys
        .iter()
        .find(|(key, _)| key == "general.base_model.count");
    assert_eq!(count.unwrap().1, GgufValue::u32(10));
    let tags = GgufValue::texts(["a"].into_iter());
    assert_eq!(keys.last().unwrap(), &("general.tags".to_owned(), tags));
}
