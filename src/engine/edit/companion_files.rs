//! The files beside the tensors that name them: the index, and configurations that list modules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anamnesis_os::files::directory_of;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::base::quote::quote;
use crate::engine::companions::{renamed_configuration, renamed_index};
use crate::engine::sink::in_place::{EditPlace, FileChange};
use crate::quant::scheme::is_configuration;
use crate::read::checkpoint::{Checkpoint, is_index};
use crate::read::rename::RenamedTensors;
use crate::read::source::files::Files;

const WHAT: &str = "the names in the directory";

/// The files that change with the names of tensors.
pub(super) fn changes(
    place: &EditPlace,
    checkpoint: &Checkpoint,
    names: &RenamedTensors<'_>,
    copy: bool,
    budget: &Budget,
) -> Result<Vec<FileChange>> {
    let Some(path) = checkpoint.path() else {
        return Ok(Vec::new());
    };
    let mut changes = Vec::new();
    if checkpoint.catalog().format() != "safetensors" {
        return Ok(changes);
    }
    let (directory, index) = match directory_and_index(checkpoint, path) {
        Some(found) => found,
        None => {
            check_alone(path, budget)?;
            return Ok(changes);
        }
    };
    let mut edited = |path: PathBuf, edit: &dyn Fn(&[u8]) -> Result<Vec<u8>>| -> Result<()> {
        let target = place.open(&path, copy)?;
        budget.memory(target.len().saturating_mul(3), WHAT)?;
        let text = usize::try_from(target.len()).ok();
        let mut text = text
            .and_then(crate::base::limits::zeroed)
            .ok_or_else(|| Error::unsupported("it does not fit in memory").in_file(&path))?;
        target.read(0, &mut text)?;
        let bytes = edit(&text).map_err(|e| e.in_file(&path))?;
        if bytes != text {
            changes.push(FileChange::Whole { target, bytes });
        }
        Ok(())
    };
    if let Some(index) = index {
        edited(index, &|text| renamed_index(text, names, budget))?;
    }
    for name in configurations(&directory)? {
        let path = directory.join(&name);
        edited(path, &|text| {
            renamed_configuration(&name, text, names, budget)
        })?;
    }
    Ok(changes)
}

/// The directory that was opened, and the index in it. `None` for a file.
fn directory_and_index(checkpoint: &Checkpoint, path: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    if path.is_dir() {
        return Some((
            path.to_owned(),
            checkpoint.described_by().map(Path::to_owned),
        ));
    }
    is_index(path).then(|| (directory_of(path).to_owned(), Some(path.to_owned())))
}

/// The note about configurations beside a single file, whose lists of modules keep the old names.
pub(super) fn left_beside(file: &Path) -> Result<Option<Note>> {
    let beside = configurations(directory_of(file))?;
    Ok((!is_index(file) && !beside.is_empty()).then(|| {
        Note::from(format!(
            "{} beside the file may name tensors and modules, and keep the old names: edit the directory to change them too",
            beside.join(", ")
        ))
    }))
}

/// The names of configurations in a directory, sorted.
fn configurations(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let is_wanted = |name: &OsStr| name.to_str().is_some_and(is_configuration);
    let listed = Files::default().list(directory, &is_wanted, &mut |name| {
        found.extend(name.into_string().ok());
        Ok(())
    });
    listed.map_err(|e| e.in_file(directory))?;
    found.sort();
    Ok(found)
}

/// Refuses to rename the tensors of one file that the index beside it names.
fn check_alone(path: &Path, budget: &Budget) -> Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(());
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let listed = std::fs::read_dir(directory_of(path));
    for entry in listed.into_iter().flatten().flatten() {
        let index = entry.file_name();
        if !is_index(Path::new(&index)) {
            continue;
        }
        let Ok((text, _charge)) = crate::read::source::regular::read_named(
            crate::read::source::file_system::NamedPath::below(directory, &entry.path()),
            budget,
            WHAT,
        ) else {
            continue;
        };
        let quoted = serde_json::to_string(name).expect("a name serialises to JSON");
        let text = String::from_utf8_lossy(&text);
        if text.contains(&quoted) {
            let what = format!(
                "the tensors of this file are named by {}, so that they are renamed in the directory as a whole",
                quote(&index.to_string_lossy())
            );
            return Err(Error::unsupported(what).with_remedy(Remedy::OpenWhole));
        }
    }
    Ok(())
}
