//! Parses the header of one path or source.

use std::path::Path;
use std::sync::Arc;

use super::OpenOptions;
use super::edit_journal::interrupted;
use super::merge::ParsedFile;
use super::read_state::{EditState, ReadState, changed, edit_state, left};
use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::Catalog;
use crate::read::format;
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;
use crate::read::source::file_system::NamedPath;
use crate::read::source::files::Files;

/// Opens a file below a directory, which that directory or an index in it names and which must be a regular one, and parses
/// its header.
pub(super) fn parse_path(
    files: &Files,
    directory: &Path,
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<ParsedFile> {
    let read = || {
        // between two files: a checkpoint may have thousands
        options.check_cancelled()?;
        let named = NamedPath::below(directory, path);
        let source = files.open_named(named, options.mapping(), budget)?;
        parse_source(source, Some(directory), Some(path), options, budget)
    };
    read().map_err(|e| e.in_file(path))
}

/// Parses the header of a source. `directory`: where its path was found.
pub(super) fn parse_source(
    source: Arc<dyn Source>,
    directory: Option<&Path>,
    path: Option<&Path>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<ParsedFile> {
    options.check_cancelled()?;
    source.ready()?;
    // in this order: see `read_state`
    let state = ReadState::of(&*source);
    let read = || {
        let mut cursor = Cursor::new(&*source, budget);
        let read = format::ReadOptions {
            format: options.format,
            opaque: options.opaque,
            gaps: false,
        };
        format::read_file(&mut cursor, path, read)
    };
    let read = read();
    let edit = match path {
        Some(path) if state.is_known() && is_edited(read.as_ref()) => edit_state(directory, path),
        _ => EditState::None,
    };
    if edit == EditState::UnderWay || state.has_changed(&*source) {
        return Err(changed());
    }
    let mut catalog = read?;
    match edit {
        EditState::Left if options.surveys() => catalog.warnings.push(interrupted()),
        EditState::Left => return Err(left()),
        EditState::None | EditState::UnderWay => {}
    }
    Ok(ParsedFile {
        source,
        state,
        catalog,
    })
}

/// Whether edits change files of this format, or it is unknown.
fn is_edited(read: Result<&Catalog, &Error>) -> bool {
    read.map_or(true, |catalog| {
        matches!(catalog.format, "safetensors" | "gguf")
    })
}
