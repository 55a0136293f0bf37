//! Warnings of opening a checkpoint, on standard error, for verbs whose output has no place for them.

use anamnesis::Checkpoint;
use anamnesis::quote::escape;

use crate::exit::note_text;
use crate::output::{Screen, WARNING};
use crate::shown_path::shown;

/// Shows the warnings of opening: values that were counted or set aside, files that hold a part of each tensor, and models
/// of a directory that were not read.
pub(crate) fn show(checkpoint: &Checkpoint, screen: &Screen) {
    for warning in checkpoint.catalog().warnings() {
        eprintln!(
            "{} {}",
            screen.paint(WARNING, "warning:"),
            escape(&note_text(warning))
        );
    }
}

/// Names the models of a directory that were not read, for verbs that are about the bytes of one model and not about what
/// is odd in it.
pub(crate) fn show_other_models(checkpoint: &Checkpoint) {
    if let Some(note) = checkpoint.other_models() {
        let path = checkpoint.path().map(shown);
        let path = path.unwrap_or_default();
        eprintln!(
            "anamnesis: warning: {}: {}",
            escape(&path),
            escape(note.text())
        );
    }
}
