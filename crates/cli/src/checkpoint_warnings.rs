//! Warnings of opening a checkpoint, on standard error, for verbs whose output has no place for them.

use std::path::{Path, PathBuf};

use anamnesis::quote::escape;
use anamnesis::source::{cache_warning, local_path};
use anamnesis::{Checkpoint, Note};

use crate::messages::message;
use crate::output::{Screen, WARNING};
use crate::remedies::note_text;
use crate::shown_path::shown;

/// Shows the warnings of opening: values that were counted or set aside, files that hold a part of each tensor, and models
/// of a directory that were not read.
pub(crate) fn show(checkpoint: &Checkpoint, screen: &Screen) {
    for warning in checkpoint.catalog().warnings() {
        message!(
            "{} {}",
            screen.paint(WARNING, "warning:"),
            escape(&note_text(warning))
        );
    }
}

/// Names the models of a directory that were not read, and who else can change the cache that was read, for verbs that are
/// about the bytes of one model and not about what is odd in it.
pub(crate) fn show_about_place(checkpoint: &Checkpoint) {
    let path = checkpoint.path().unwrap_or(Path::new(""));
    show_note(path, checkpoint.other_models());
    show_note(path, checkpoint.cache_warning());
}

/// The same as text, for documents.
pub(crate) fn about_place(checkpoint: &Checkpoint) -> Vec<String> {
    let others = checkpoint.other_models().into_iter();
    let notes = others.chain(checkpoint.cache_warning());
    notes.map(note_text).collect()
}

/// The local path of an argument. Says who else can change the hub's cache on this machine, where the argument leads into it.
///
/// # Errors
///
/// The errors of [`local_path`].
pub(crate) fn found_path(given: &Path) -> anamnesis::Result<PathBuf> {
    let found = local_path(given)?;
    show_note(given, cache_warning(given, &found).as_ref());
    Ok(found)
}

fn show_note(path: &Path, note: Option<&Note>) {
    if let Some(note) = note {
        message!(
            "anamnesis: warning: {}: {}",
            escape(&shown(path)),
            escape(&note_text(note))
        );
    }
}
