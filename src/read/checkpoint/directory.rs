//! Which files of a directory are its checkpoint.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::source::files::Files;

use super::OpenOptions;
use super::distributed;
use super::faults::{OpenFault, OpenFaultKind};
use super::named_files::{INDEX, charge_files, require, split_name};

/// The files of a directory that are opened.
pub(super) struct FileSelection {
    pub(super) files: Vec<PathBuf>,
    pub(super) warning: Option<String>,
}

/// Selects the files of a directory: its index, else the only file or the complete set of shards of the first extension
/// in the list.
pub(super) fn select_files(
    files: &Files,
    directory: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<FileSelection> {
    let mut names: Vec<String> = Vec::new();
    // lists of names that are searched refer to them
    const REFERENCES: u64 = 4 * size_of::<&String>() as u64;
    files.list(directory, &|_| true, &mut |name| {
        let name = name.to_string_lossy().into_owned();
        budget.memory(text_cost(name.capacity()) + REFERENCES, "the directory")?;
        budget.push(&mut names, name, "the directory")
    })?;
    // the order of a listing is unspecified, and the choice must not depend on it
    names.sort();
    let all = |with: &str| {
        names
            .iter()
            .filter(|n| n.ends_with(with))
            .collect::<Vec<_>>()
    };
    let one = |name: &String, warning| {
        Ok(FileSelection {
            files: vec![directory.join(name)],
            warning,
        })
    };
    let indexes: Vec<&String> = all(INDEX)
        .into_iter()
        .filter(|n| n.contains(".safetensors") || n.contains(".bin"))
        .collect();
    // the names that transformers writes
    for preferred in [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ] {
        if let Some(name) = indexes.iter().find(|n| **n == preferred) {
            let others: Vec<&str> = indexes
                .iter()
                .filter(|n| n != &name)
                .map(|n| n.as_str())
                .collect();
            let warning = (!others.is_empty())
                .then(|| format!("{name} was read; not read: {}", others.join(", ")));
            return one(name, warning);
        }
    }
    match indexes.as_slice() {
        [] => {}
        [only] => return one(only, None),
        several => return Err(ambiguous(directory, several, options, budget)),
    }
    // safer and faster formats first
    for extension in [
        "safetensors",
        "gguf",
        distributed::EXTENSION,
        "bin",
        "pth",
        "pt",
        "ckpt",
        "npz",
        "npy",
    ] {
        let found = all(&format!(".{extension}"));
        // the names that transformers reads, where several files have the extension
        let main = found
            .iter()
            .find(|n| n.as_str() == "model.safetensors" || n.as_str() == "pytorch_model.bin");
        match (found.as_slice(), main) {
            ([], _) => {}
            // the files that `.metadata` names, which is found by its name alone
            (_, None) if extension == distributed::EXTENSION => {
                let metadata = directory.join(distributed::METADATA);
                require(files, std::slice::from_ref(&metadata))?;
                return Ok(FileSelection {
                    files: vec![metadata],
                    warning: None,
                });
            }
            // one shard of several is not a checkpoint
            ([only], _) if split_name(only).is_none_or(|(_, _, of)| of == 1) => {
                return one(only, None);
            }
            (several, Some(main)) => {
                let others: Vec<&str> = several
                    .iter()
                    .filter(|n| n != &main)
                    .map(|n| n.as_str())
                    .collect();
                return one(
                    main,
                    Some(format!("{main} was read; not read: {}", others.join(", "))),
                );
            }
            // the first extension with files decides; files of other extensions are usually the same model in another
            // format
            (several, None) => return shard_set(files, directory, several, options, budget),
        }
    }
    Err(Error::new(ErrorKind::UnknownFormat {
        looks_like: "a directory without tensor files".into(),
    }))
}

/// Several files are one checkpoint if they are the numbered shards of one.
fn shard_set(
    files: &Files,
    directory: &Path,
    names: &[&String],
    options: &OpenOptions,
    budget: &Budget,
) -> Result<FileSelection> {
    let splits: Vec<_> = names.iter().filter_map(|n| split_name(n)).collect();
    let [(prefix, _, of), ..] = splits[..] else {
        return Err(ambiguous(directory, names, options, budget));
    };
    // two numbered sets, or a set and another file: no name states which of them is the checkpoint
    if splits.len() != names.len() || splits.iter().any(|s| (s.0, s.2) != (prefix, of)) {
        return Err(ambiguous(directory, names, options, budget));
    }
    let extension = names[0].rsplit_once('.').map_or("", |(_, e)| e);
    if extension == "gguf" {
        // `open_split` finds the other files from any of them
        return Ok(FileSelection {
            files: vec![directory.join(names[0])],
            warning: None,
        });
    }
    // a file name must not make this build a list of 2⁶⁴ paths
    if of > 1_000_000 {
        return Err(ambiguous(directory, names, options, budget));
    }
    charge_files(budget, of, directory, names[0].len())?;
    let paths: Vec<PathBuf> = (1..=of)
        .map(|n| directory.join(format!("{prefix}-{n:05}-of-{of:05}.{extension}")))
        .collect();
    Ok(FileSelection {
        files: options.present(files, paths, budget)?,
        warning: None,
    })
}

/// The error for a directory with several checkpoints, which a survey names one by one.
fn ambiguous(directory: &Path, names: &[&String], options: &OpenOptions, budget: &Budget) -> Error {
    const SHOWN: usize = 4;
    for name in names.iter().filter(|_| options.surveys()) {
        let fault = OpenFault {
            kind: OpenFaultKind::OneOfSeveral,
            file: Some(directory.join(name.as_str())),
            tensor: None,
            error: Error::unsupported("one of several checkpoints of a directory"),
        };
        if let Err(error) = options.fault(fault, budget) {
            return error;
        }
    }
    let shown: Vec<&str> = names.iter().take(SHOWN).map(|n| n.as_str()).collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    Error::unsupported(format!(
        "the directory contains {} checkpoints; open one of them ({}{more})",
        names.len(),
        shown.join(", ")
    ))
}
