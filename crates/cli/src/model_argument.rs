//! The model among the arguments of a command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anamnesis::Checkpoint;
use anamnesis::source::local_path;
use anamnesis_os::files::directory_of;

/// The directory of the model that is the first argument of a command to open as a checkpoint.
pub(crate) fn model_among(command: &[OsString]) -> Option<PathBuf> {
    command.iter().skip(1).find_map(|argument| {
        // a program's own options and texts send no request
        let path = local_path(Path::new(argument)).ok()?;
        // a stream would be empty for the program that it is meant for: `record -- cat <(…)`
        let found = std::fs::metadata(&path).ok()?;
        if !found.is_dir() && !found.is_file() {
            return None;
        }
        // opening is the only reliable test: programs name their models in options, as positions or as directories
        drop(Checkpoint::open(&path).ok()?);
        Some(if path.is_dir() {
            path
        } else {
            directory_of(&path).to_owned()
        })
    })
}
