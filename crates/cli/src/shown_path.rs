//! Paths as every message, table and document of the command shows them.

use std::path::Path;

use anamnesis::source::shown_path;

/// The text of a path: a URL without its secrets.
pub(crate) fn shown(path: &Path) -> String {
    shown_path(path).display().to_string()
}
