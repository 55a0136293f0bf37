//! Edits of files where they are.

use std::path::PathBuf;

use anamnesis::sink::{GgufValue, HeaderValue};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::run::interruptible;

/// Path, way, bytes that were written.
type EditedRow = (String, &'static str, u64);

/// The changes of an edit, in the order in which they were given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct EditChanges {
    set: Vec<(String, String)>,
    unset: Vec<String>,
    rename_key: Vec<(String, String)>,
    rename: Vec<(String, String)>,
    copy: bool,
    compact: bool,
    recover: bool,
}

/// Changes the files, or completes an edit of them that was interrupted.
#[pyfunction]
#[pyo3(signature = (path, changes, progress = None))]
pub(crate) fn edit(
    py: Python<'_>,
    path: PathBuf,
    changes: EditChanges,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<EditedRow>> {
    let mut edit = anamnesis::edit(path)
        .copy(changes.copy)
        .compact(changes.compact);
    for (key, text) in &changes.set {
        let (key, value) = HeaderValue::of_key(key, text).map_err(|e| exception(py, &e))?;
        edit = edit.set(key, value);
    }
    for key in &changes.unset {
        edit = edit.unset(key);
    }
    for (from, to) in &changes.rename_key {
        edit = edit.rename_key(from, to);
    }
    for (from, to) in &changes.rename {
        edit = edit.rename(from, to);
    }
    let report = interruptible(py, progress.as_ref(), |state| {
        if changes.recover {
            return edit.recover();
        }
        let of_run = std::sync::Arc::clone(state);
        let edit = edit.cancel(&state.cancel);
        edit.progress(move |progress| of_run.on_progress(progress))
            .commit()
    })?;
    let files = report.files.into_iter();
    Ok(files
        .map(|file| {
            (
                file.path.display().to_string(),
                file.way.name(),
                file.bytes_written,
            )
        })
        .collect())
}

/// Whether a key has a type of a GGUF behind a colon.
#[pyfunction]
pub(crate) fn has_type(key: &str) -> bool {
    let kind = key.rsplit_once(':').map(|(_, kind)| kind);
    kind.is_some_and(|kind| GgufValue::parse_named(kind, "").is_some())
}
