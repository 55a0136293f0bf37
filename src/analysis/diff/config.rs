//! The differences between two `config.json`, entry by entry.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::models::config::document;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::file_system::{MapMode, NamedPath};

use super::bytes::ranges_equal;
use super::differences::ConfigDifferences;

const WHAT: &str = "the comparison of configurations";

/// The directory whose sidecar files belong to a checkpoint. The directory of a GGUF or of NumPy files may hold the sidecar
/// files of another model.
pub(super) fn folder(checkpoint: &Checkpoint) -> Option<PathBuf> {
    let path = checkpoint
        .path()
        .filter(|_| matches!(checkpoint.catalog().format, "safetensors" | "pth" | "dcp"))?;
    Some(checkpoint.files().folder_of(path).to_owned())
}

/// The differences, and a note if only one side has a configuration.
pub(super) fn differences(
    a: &Checkpoint,
    b: &Checkpoint,
    budget: &Budget,
) -> Result<(Option<ConfigDifferences>, Option<String>)> {
    match (read(a, budget)?, read(b, budget)?) {
        (Some(a), Some(b)) => {
            let mut found = ConfigDifferences::default();
            compare(&a, &b, "", &mut found, budget, 0)?;
            Ok((Some(found), None))
        }
        (None, None) => Ok((None, None)),
        // a note and no difference: a file was named alone, or the other format has none
        (Some(_), None) => Ok((None, Some("config.json: A alone has one".to_owned()))),
        (None, Some(_)) => Ok((None, Some("config.json: B alone has one".to_owned()))),
    }
}

fn read(checkpoint: &Checkpoint, budget: &Budget) -> Result<Option<Map<String, Json>>> {
    let Some(folder) = folder(checkpoint) else {
        return Ok(None);
    };
    let (files, at) = (checkpoint.files(), folder.join("config.json"));
    // remote files are announced, so that their requests begin together
    files.begin(&mut std::iter::once(at.clone()));
    match document::read(files, NamedPath::below(&folder, &at), budget) {
        Ok(map) => Ok(Some(map)),
        Err(e) if document::is_absent(files, &at, &e) => Ok(None),
        Err(e) => Err(document::unreadable(files, &at, e)),
    }
}

/// The file that [`tokenizers`] compares.
pub(super) const TOKENIZER: &str = "tokenizer.json";

/// A note if the `tokenizer.json` of the two sides has other bytes; `None` if not both have one. The meaning of the
/// differences is not known here.
pub(super) fn tokenizers(a: &Checkpoint, b: &Checkpoint) -> Result<Option<Option<String>>> {
    let open = |checkpoint: &Checkpoint| {
        // a file that was named alone stands for itself
        let is_directory = |path: &&Path| checkpoint.files().is_directory(path);
        let directory = checkpoint.path().filter(is_directory)?;
        let (files, at) = (checkpoint.files(), directory.join(TOKENIZER));
        let budget = checkpoint.budget();
        let mapping = MapMode {
            mmap: false,
            private: false,
        };
        let source = files
            .open_named(NamedPath::in_its_directory(&at), mapping, &budget)
            .ok()?;
        // a note is not worth an error: the tokenizer decides nothing
        source.ready().ok()?;
        Some((source.len()?, source))
    };
    let Some(((x_len, x), (y_len, y))) = open(a).zip(open(b)) else {
        return Ok(None);
    };
    // lengths first, so that different files are hardly read
    let same = x_len == y_len
        && ranges_equal((&*x, 0), (&*y, 0), x_len).map_err(|(_, e)| Error::from(e))?;
    Ok(Some((!same).then(|| format!("{TOKENIZER}: other bytes"))))
}

/// Memory of an entry, beyond its key.
const ENTRY: u64 = 3 * size_of::<(usize, String, Json)>() as u64;

fn compare(
    a: &Map<String, Json>,
    b: &Map<String, Json>,
    prefix: &str,
    found: &mut ConfigDifferences,
    budget: &Budget,
    depth: u64,
) -> Result<()> {
    // the documents come from the caller's files, and this recurses
    budget.depth(depth, WHAT)?;
    let charge = |key: &str, values: &[&Json]| -> Result<()> {
        let values = values.iter().map(|value| memory(value));
        let values = values.fold(0, u64::saturating_add);
        budget.memory(ENTRY + text_cost(prefix.len() + key.len()) + values, WHAT)
    };
    let whole = |key: &str| [prefix, key].concat();
    for (key, old) in a {
        match b.get(key) {
            None => {
                charge(key, &[old])?;
                found.removed.insert(whole(key), old.clone());
            }
            Some(Json::Object(new)) if old.is_object() => {
                budget.text(prefix.len() + key.len() + 1, WHAT)?;
                let prefix = [prefix, key, "."].concat();
                let old = old.as_object().expect("just tested");
                compare(old, new, &prefix, found, budget, depth + 1)?;
            }
            Some(new) if is_same(old, new) => {}
            Some(new) => {
                charge(key, &[old, new])?;
                let pair = vec![old.clone(), new.clone()];
                found.changed.insert(whole(key), pair.into());
            }
        }
    }
    for (key, new) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
        charge(key, &[new])?;
        found.added.insert(whole(key), new.clone());
    }
    Ok(())
}

/// Whether two values are the same: `1` and `1.0` are.
fn is_same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        // programs write a factor as `1` or `1.0`, and serde_json tells them apart
        (Json::Number(x), Json::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Json::Array(x), Json::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| is_same(x, y))
        }
        _ => a == b,
    }
}

/// Memory of a value. Its depth was bounded when it was parsed.
fn memory(value: &Json) -> u64 {
    let own = size_of::<Json>() as u64;
    match value {
        Json::String(text) => own + text_cost(text.len()),
        Json::Array(items) => items.iter().map(memory).fold(own, u64::saturating_add),
        Json::Object(map) => map
            .iter()
            .map(|(key, value)| ENTRY + text_cost(key.len()) + memory(value))
            .fold(own, u64::saturating_add),
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::limits::Limits;

    #[test]
    fn nested_entries_are_compared_by_their_whole_key() {
        let a = json!({"x": 1, "gone": [1], "text": {"n": 2, "same": [1, 2.0]}, "kind": {"a": 1}});
        let b = json!({"x": 1.0, "text": {"n": 3, "same": [1.0, 2], "new": null}, "kind": "a"});
        let mut found = ConfigDifferences::default();
        let budget = Budget::new(Limits::default());
        let (a, b) = (a.as_object().unwrap(), b.as_object().unwrap());
        compare(a, b, "", &mut found, &budget, 0).unwrap();
        assert_eq!(
            serde_json::to_value(&found).unwrap(),
            json!({
                "added": {"text.new": null}, "removed": {"gone": [1]},
                "changed": {"text.n": [2, 3], "kind": [{"a": 1}, "a"]},
            })
        );
    }
}
