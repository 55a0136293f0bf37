//! Parses the header of one path or source.

use std::path::Path;
use std::sync::Arc;

use super::OpenOptions;
use super::merge::ParsedFile;
use crate::base::error::Result;
use crate::base::limits::Budget;
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
        parse_source(source, Some(path), options, budget)
    };
    read().map_err(|e| e.in_file(path))
}

/// Parses the header of a source.
pub(super) fn parse_source(
    source: Arc<dyn Source>,
    path: Option<&Path>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<ParsedFile> {
    options.check_cancelled()?;
    source.ready()?;
    let catalog = {
        let mut cursor = Cursor::new(&*source, budget);
        let read = format::ReadOptions {
            format: options.format,
            opaque: options.opaque,
            gaps: false,
        };
        format::read_file(&mut cursor, path, read)?
    };
    Ok(ParsedFile { source, catalog })
}
