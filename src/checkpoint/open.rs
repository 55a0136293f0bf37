//! Opens one path or source: decides how its bytes are read, and reads its header.

use std::fs::File;
use std::path::Path;

use super::OpenOptions;
use super::merge::ParsedFile;
use crate::error::{Error, Result};
use crate::format;
use crate::limits::Budget;
use crate::source::cursor::Cursor;
use crate::source::{FileSource, SMALL, Source, StreamSource};

/// What is behind a path.
pub(super) enum Found {
    Directory,
    File(Box<dyn Source>),
}

/// Opens the file behind a path, if it is one: mapped, read, or streamed if it is a pipe. Asks the system once: of a small
/// file each question is a tenth of the time that opening takes.
pub(super) fn find(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<Found> {
    let file = match File::open(path) {
        // where directories cannot be opened
        Err(_) if path.is_dir() => return Ok(Found::Directory),
        file => file?,
    };
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Ok(Found::Directory);
    }
    if !meta.is_file() {
        return Ok(Found::File(Box::new(StreamSource::new(file))));
    }
    let len = meta.len();
    let keep = len <= SMALL && budget.memory(len, "a small file").is_ok();
    #[cfg(feature = "mmap")]
    if options.mmap {
        return Ok(Found::File(Box::new(crate::source::MmapSource::with_len(
            file, len, keep,
        ))));
    }
    let _ = options;
    Ok(Found::File(Box::new(FileSource::with_len(file, len, keep))))
}

/// Opens a file and reads its header.
pub(super) fn read_path(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<ParsedFile> {
    let read = || match find(path, options, budget)? {
        Found::Directory => Err(Error::from(std::io::Error::from(
            std::io::ErrorKind::IsADirectory,
        ))),
        Found::File(source) => read_part(source, Some(path), options, budget),
    };
    read().map_err(|e| e.in_file(path))
}

pub(super) fn read_part(
    source: Box<dyn Source>,
    path: Option<&Path>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<ParsedFile> {
    let mut cursor = Cursor::new(&*source, budget);
    let catalog = format::read_file(&mut cursor, path, options.format)?;
    Ok(ParsedFile { source, catalog })
}
