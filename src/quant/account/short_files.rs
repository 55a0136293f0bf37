//! Short files beside a checkpoint, wherever it is.

use std::path::Path;

use crate::base::limits::{Budget, TemporaryCharge};
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::Files;
use crate::read::source::read_exact_at;

const WHAT: &str = "the files beside the checkpoint";

/// The content of a file beside a checkpoint, unless it is longer than `most` bytes or cannot be read.
pub(super) fn short_file<'b>(
    files: &Files,
    path: &Path,
    most: u64,
    budget: &'b Budget,
) -> Option<(Vec<u8>, TemporaryCharge<'b>)> {
    let mapping = MapMode {
        mmap: false,
        private: false,
    };
    let path = NamedPath::in_its_directory(path);
    let source = files.open_named(path, mapping, budget).ok()?;
    source.ready().ok()?;
    let len = source.len().filter(|len| *len <= most)?;
    let charge = budget
        .temporary(len.saturating_add(source.held()), WHAT)
        .ok()?;
    let mut content = vec![0; usize::try_from(len).ok()?];
    read_exact_at(&*source, 0, &mut content).ok()?;
    Some((content, charge))
}
