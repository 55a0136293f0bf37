//! Paths as every message, table and document of the command shows them.

use std::path::Path;

use anamnesis::quote::path_text;
use anamnesis::source::shown_path;

/// The text of a path: a URL without its secrets, and bytes that are not UTF-8 escaped.
pub(crate) fn shown(path: &Path) -> String {
    path_text(&shown_path(path))
}
