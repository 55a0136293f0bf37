//! Opens one path or source, and parses its header.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::OpenOptions;
use super::merge::ParsedFile;
use crate::error::Result;
use crate::format;
use crate::limits::Budget;
use crate::source::cursor::Cursor;
use crate::source::regular::open_regular;
use crate::source::{FileSource, SMALL, Source, StreamSource};

/// An opened path.
pub(super) enum OpenedPath {
    Directory,
    File(Arc<dyn Source>),
}

/// Opens a path of the caller's: a file is mapped or read, a pipe is streamed. Makes one `open` and one `fstat`: for a
/// small file, each further system call adds a tenth to the time of opening (experiment 43 in
/// `docs/perf-experiments.md`).
pub(super) fn open_path(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<OpenedPath> {
    let file = match File::open(path) {
        // Windows cannot open a directory as a file
        Err(_) if path.is_dir() => return Ok(OpenedPath::Directory),
        file => file?,
    };
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Ok(OpenedPath::Directory);
    }
    if !meta.is_file() {
        // pipes and terminals have no length and cannot be read at offsets
        return Ok(OpenedPath::File(Arc::new(StreamSource::new(file))));
    }
    Ok(OpenedPath::File(source_of(
        file,
        meta.len(),
        options,
        budget,
    )))
}

/// The source of a regular file.
pub(super) fn source_of(
    file: File,
    len: u64,
    options: &OpenOptions,
    budget: &Budget,
) -> Arc<dyn Source> {
    // charged like every other allocation; a file that exceeds the budget is read in windows instead
    let keep = len <= SMALL && budget.memory(len, "a small file").is_ok();
    #[cfg(feature = "mmap")]
    if options.mmap {
        let source = crate::source::MmapSource::with_len(file, len, keep);
        return Arc::new(source.private(options.private));
    }
    let _ = options;
    Arc::new(FileSource::with_len(file, len, keep))
}

/// Opens a file that an index or a directory names, which must be a regular one, and parses its header.
pub(super) fn parse_path(
    path: &Path,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<ParsedFile> {
    let read = || {
        options.check_cancelled()?;
        let (file, len) = open_regular(path)?;
        let source = source_of(file, len, options, budget);
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
