//! The checkpoints below a directory that holds several of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, Limits, text_cost};
use crate::base::template::weight_ending;
use crate::read::source::files::Files;
use crate::read::source::snapshot::snapshot_of;

use super::OpenOptions;
use super::directory::select_files;
use super::named_files::split_name;

/// The deepest directory that is searched.
const MAX_DEPTH: usize = 16;
/// Endings of files with tensors that are no checkpoint each where a directory holds several: parts and arrays.
const PARTS: [&str; 3] = ["distcp", "npz", "npy"];

/// The paths below a directory that [`Checkpoint::open`](crate::Checkpoint::open) opens as one checkpoint each, in the order of
/// their names. Opens none of them.
///
/// A directory with one checkpoint is itself the result. A repository in the hub's cache gives its chosen snapshot. A
/// directory with several gives each file, and each split once; further directories are searched where a directory has no
/// tensor files. Hidden directories and links to directories are not searched.
///
/// # Errors
/// A directory cannot be read, or more names than [`Limits::memory`] allows.
pub fn checkpoints_below(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let (budget, mut found) = (Budget::new(Limits::default()), Vec::new());
    let mut pending = vec![(directory.as_ref().to_owned(), 0)];
    while let Some((path, depth)) = pending.pop() {
        // one that cannot be chosen is reported by the caller that opens it
        let path = snapshot_of(&path).ok().flatten().unwrap_or(path);
        let files = Files::default();
        match select_files(&files, &path, &OpenOptions::default(), &budget) {
            Ok(_) => add(&mut found, path, &budget)?,
            Err(error) if matches!(error.kind(), ErrorKind::UnknownFormat { .. }) => {
                if depth < MAX_DEPTH {
                    // `pending` is a stack: the first name is visited next
                    let below = directories(&path, &budget)?;
                    pending.extend(below.into_iter().rev().map(|path| (path, depth + 1)));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
                for file in separate(&files, &path, &budget)? {
                    add(&mut found, file, &budget)?;
                }
            }
            // it is one checkpoint and has a fault, which opening it reports
            Err(_) if path.is_dir() && depth > 0 => add(&mut found, path, &budget)?,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<PathBuf>, path: PathBuf, budget: &Budget) -> Result<()> {
    const WHAT: &str = "the list of checkpoints";
    budget.memory(text_cost(path.as_os_str().len()), WHAT)?;
    budget.push(found, path, WHAT)
}

fn directories(path: &Path, budget: &Budget) -> Result<Vec<PathBuf>> {
    let in_path = |e| Error::from(e).in_file(path);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(in_path)? {
        let entry = entry.map_err(in_path)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add(&mut found, entry.path(), budget)?;
        }
    }
    found.sort();
    Ok(found)
}

/// The files of a directory that are checkpoints of their own.
fn separate(files: &Files, path: &Path, budget: &Budget) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let is_tensor_file = |name: &std::ffi::OsStr| {
        let ending = name.to_str().and_then(weight_ending);
        ending.is_some_and(|ending| !PARTS.contains(&ending))
    };
    files.list(path, &is_tensor_file, &mut |name| {
        // any file of a split GGUF opens the whole of it
        let text = name.to_string_lossy();
        let is_later = split_name(&text).is_some_and(|(_, number, _)| number > 1);
        if weight_ending(&text) == Some("gguf") && is_later {
            return Ok(());
        }
        add(&mut found, path.join(&name), budget)
    })?;
    found.sort();
    Ok(found)
}
