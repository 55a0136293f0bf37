//! The files of a directory that are no part of the checkpoint that was opened of it, and why.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::base::note::Note;
use crate::read::catalog::Catalog;
use crate::read::source::files::Files;

use super::distributed;
use super::named_files::{INDEX, file_name};

/// A file of a directory that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadFile {
    /// Its path below the directory.
    pub path: String,
    /// Why it was not looked at.
    pub why: &'static str,
}

impl UnreadFile {
    pub(crate) fn new(path: String, why: &'static str) -> Self {
        Self { path, why }
    }
}

/// Endings of files with tensors, safer and faster formats first: the first one with files decides what a directory is
/// opened as.
pub(super) const TENSOR_ENDINGS: [&str; 9] = [
    "safetensors",
    "gguf",
    distributed::EXTENSION,
    "bin",
    "pth",
    "pt",
    "ckpt",
    "npz",
    "npy",
];

/// Endings of models in formats that are not read.
const OTHER_FORMATS: [&str; 8] = [
    "h5", "msgpack", "onnx", "tflite", "ot", "mlmodel", "pb", "keras",
];

/// Beginnings of files that trainers write beside a model to resume from. They are no models, and most of them name
/// functions that are not plain data.
const TRAINING_STATE: [&str; 6] = [
    "training_args.",
    "optimizer.",
    "scheduler.",
    "scaler.",
    "rng_state",
    "random_states_",
];

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Whether a file is an index of shards by its name.
pub(super) fn is_index_name(name: &str) -> bool {
    name.ends_with(INDEX) && (name.contains(".safetensors") || name.contains(".bin"))
}

/// Whether a file is a state to resume training from by its name.
pub(crate) fn is_training_state(name: &str) -> bool {
    TRAINING_STATE.iter().any(|start| name.starts_with(start))
}

/// Whether a name has the ending of a file that holds tensors.
pub(crate) fn has_tensor_ending(name: &str) -> bool {
    TENSOR_ENDINGS.contains(&ending(name))
}

/// Whether a file is a model or a part of one by its name: a file of tensors or an index.
pub(crate) fn is_model_file(name: &str) -> bool {
    let is_tensors = has_tensor_ending(name) || is_index_name(name);
    // hidden files are other programs' own
    is_tensors && !name.starts_with('.') && !is_training_state(name)
}

/// Why a file of this name was not looked at.
fn reason(name: &str, is_regular: bool) -> &'static str {
    match name {
        _ if !is_regular => "no regular file",
        _ if name.starts_with('.') => "hidden",
        _ if is_training_state(name) => "a state of training",
        _ if is_model_file(name) => "another model",
        _ if OTHER_FORMATS.contains(&ending(name)) => "a format that is not read",
        _ => "no tensors",
    }
}

/// The names of the files directly in a directory, sorted.
pub(crate) fn names_in(files: &Files, directory: &Path, budget: &Budget) -> Result<Vec<String>> {
    let mut names = Vec::new();
    files.list(directory, &|_| true, &mut |name| {
        let name = name.to_string_lossy().into_owned();
        budget.memory(text_cost(name.capacity()), WHAT)?;
        budget.push(&mut names, name, WHAT)
    })?;
    // the order of a listing is unspecified
    names.sort();
    Ok(names)
}

/// The number of files in a directory, and those that `is_read` does not accept by their names, with the reasons.
pub(crate) fn unread_files(
    files: &Files,
    directory: &Path,
    is_read: &dyn Fn(&str) -> bool,
    budget: &Budget,
) -> Result<(u64, Vec<UnreadFile>)> {
    let mut unread = Vec::new();
    let names = names_in(files, directory, budget)?;
    let count = names.len() as u64;
    for path in names {
        if is_read(&path) {
            continue;
        }
        // at a URL this is not known without a request, and listings have files only
        let is_regular = !files.is_local() || files.is_file(&directory.join(&path));
        let why = reason(&path, is_regular);
        budget.push(&mut unread, UnreadFile { path, why }, WHAT)?;
    }
    Ok((count, unread))
}

/// A note about the models of a directory that were not opened; `None` if there are none. `names` are the directory's,
/// `selected` are the paths that opening chose.
pub(super) fn other_models(
    directory: &Path,
    names: &[String],
    selected: &[PathBuf],
    catalog: &Catalog,
) -> Option<Note> {
    /// Names in the note.
    const SHOWN: usize = 16;
    let opened = catalog.files.iter().filter_map(|file| file.path.as_deref());
    let paths = selected.iter().map(PathBuf::as_path).chain(opened);
    let read: BTreeSet<&OsStr> = paths
        .filter(|path| path.parent() == Some(directory))
        .filter_map(Path::file_name)
        .collect();
    let others: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| is_model_file(name) && !read.contains(OsStr::new(name)))
        .collect();
    let first = others.first()?;
    let endings: BTreeSet<&str> = read
        .iter()
        .filter_map(|name| name.to_str())
        .map(ending)
        .collect();
    let has_other_format = |name: &&str| !endings.contains(ending(name));
    let more = match others.len() - others.len().min(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = format!("{}{more}", others[..others.len().min(SHOWN)].join(", "));
    let chosen = selected
        .first()
        .map(|path| file_name(path))
        .unwrap_or_default();
    Some(Note::from(if others.iter().any(has_other_format) {
        format!(
            "the directory holds models of several formats: {chosen} was read; not read: {shown}"
        )
    } else if is_index_name(&chosen) && !is_index_name(first) {
        format!("the index does not name, and not read are: {shown}")
    } else {
        format!("the directory holds several models: {chosen} was read; not read: {shown}")
    }))
}

const WHAT: &str = "the directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        for (name, why) in [
            ("model.gguf", "another model"),
            ("pytorch_model.bin.index.json", "another model"),
            ("training_args.bin", "a state of training"),
            ("rng_state_3.pth", "a state of training"),
            ("tf_model.h5", "a format that is not read"),
            (".model.safetensors", "hidden"),
            ("config.json", "no tensors"),
            ("tokenizer.index.json", "no tensors"),
        ] {
            assert_eq!(reason(name, true), why, "{name}");
            assert_eq!(is_model_file(name), why == "another model", "{name}");
        }
        assert_eq!(reason("model.gguf", false), "no regular file");
    }
}
