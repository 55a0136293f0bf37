//! Names in the configuration of an adapter of peft, after a rename.
//!
//! `adapter_config.json` names modules of the base model: by the ends of their names, by parts of them, or by a regular
//! expression. These are no names of tensors, so that they stay, and a note says which of them match other tensors.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::models::config::document;
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;
use crate::read::rename::RenamedTensors;
use crate::read::source::file_system::NamedPath;

const FILE: &str = "adapter_config.json";
const WHAT: &str = "the configuration of the adapter";

/// Keys with names of modules or parameters: a text, a list, or the keys of an object. Source: peft 0.17, `LoraConfig`.
static KEYS: [&str; 8] = [
    "target_modules",
    "exclude_modules",
    "modules_to_save",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "target_parameters",
    "trainable_token_indices",
];

/// Names of a key that a note has.
const NAMED: usize = 3;

/// The note about entries that match other tensors than before.
pub(crate) fn adapter_entries_that_stay(
    checkpoint: &Checkpoint,
    names: &RenamedTensors<'_>,
    budget: &Budget,
) -> Result<Option<Note>> {
    let Some(path) = checkpoint.path() else {
        return Ok(None);
    };
    let files = checkpoint.files();
    let folder = files.folder_of(path);
    let at = folder.join(FILE);
    let _tree = budget.scope();
    // one that cannot be read describes nothing
    let Ok(config) = document::read(files, NamedPath::below(folder, &at), budget) else {
        return Ok(None);
    };
    let mut stay: BTreeSet<(&str, &str)> = BTreeSet::new();
    for key in KEYS {
        let entries: Vec<&str> = match config.get(key) {
            Some(Json::String(pattern)) => vec![pattern],
            Some(Json::Array(entries)) => entries.iter().filter_map(Json::as_str).collect(),
            Some(Json::Object(entries)) => entries.keys().map(String::as_str).collect(),
            _ => continue,
        };
        for entry in entries {
            if stays(entry, names, budget)? {
                stay.insert((key, entry));
            }
        }
    }
    let mut named: Vec<String> = stay
        .iter()
        .take(NAMED)
        .map(|(key, entry)| format!("{} of {key}", quote(entry)))
        .collect();
    if let Some(more @ 1..) = stay.len().checked_sub(NAMED) {
        named.push(format!("{more} others"));
    }
    Ok((!named.is_empty()).then(|| {
        Note::from(format!(
            "{FILE} names modules, and does not follow the rename: change in it what matches other tensors now: {}",
            named.join(", ")
        ))
    }))
}

/// Whether an entry is for a tensor whose new name it does not match: one with a part of names that the new name lacks, or with a
/// pattern, which is not followed.
fn stays(entry: &str, names: &RenamedTensors<'_>, budget: &Budget) -> Result<bool> {
    let is_pattern = entry.contains(['*', '\\', '^', '$', '(', '[', '+', '|']);
    for (old, new) in names.pairs() {
        budget.steps(1 + old.len() as u64 / 64, WHAT)?;
        if old != new && (is_pattern || has_part(old, entry) && !has_part(new, entry)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a name has an entry between two dots, or its ends.
fn has_part(name: &str, entry: &str) -> bool {
    let mut found = name.match_indices(entry);
    !entry.is_empty()
        && found.any(|(at, _)| {
            let (front, rest) = (&name[..at], &name[at + entry.len()..]);
            (front.is_empty() || front.ends_with('.')) && (rest.is_empty() || rest.starts_with('.'))
        })
}
