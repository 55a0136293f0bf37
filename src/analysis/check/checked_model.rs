//! The model whose files are compared with digests.

use std::path::{Path, PathBuf};

use crate::read::checkpoint::DirectoryListing;
use crate::read::source::files::Files;

/// The model whose files are looked at.
pub(super) struct CheckedModel<'m> {
    pub(super) files: &'m Files,
    pub(super) root: &'m Path,
    /// Paths of the files that belong to it.
    pub(super) paths: &'m [PathBuf],
    /// Whether the model is a directory, of which all files of a list of digests must be there.
    pub(super) whole: bool,
    /// The names in the directory, if the model is one.
    pub(super) listing: Option<&'m DirectoryListing>,
}
