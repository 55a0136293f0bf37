//! The local file system: a caller's path may be any kind of file, a file that another one names must be regular.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, TemporaryCharge};
use crate::base::progress::CancelToken;

use super::file_system::{FileSystem, MapMode, NamedPath, OpenedPath};
use super::open_files::with_descriptor;
use super::regular::{check_directory, open_named, open_without_waiting, read_named, read_opened};
use super::{FileSource, SMALL, Source, StreamSource};

/// Calls `each` with the names in a directory that are wanted, and whether each is a folder.
fn entries(
    directory: &Path,
    wanted: &dyn Fn(&OsStr) -> bool,
    each: &mut dyn FnMut(OsString, bool) -> Result<()>,
) -> Result<()> {
    let in_directory = |e| Error::from(e).in_file(directory);
    for entry in fs::read_dir(directory).map_err(in_directory)? {
        let entry = entry.map_err(in_directory)?;
        let name = entry.file_name();
        if !wanted(&name) {
            continue;
        }
        let is_folder = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            // links are followed: hubs' caches consist of links to blobs
            _ => entry.path().is_dir(),
        };
        each(name, is_folder)?;
    }
    Ok(())
}

/// The file system of the operating system.
pub(crate) struct LocalFiles;

impl FileSystem for LocalFiles {
    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn list(
        &self,
        directory: &Path,
        wanted: &dyn Fn(&OsStr) -> bool,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<()> {
        entries(directory, wanted, &mut |name, is_folder| match is_folder {
            true => Ok(()),
            false => each(name),
        })
    }

    fn list_with_folders(
        &self,
        directory: &Path,
        each: &mut dyn FnMut(OsString, bool) -> Result<()>,
    ) -> Result<()> {
        entries(directory, &|_| true, each)
    }

    /// A file is mapped or read, a pipe is streamed. Makes one `open` and one `fstat`: for a small file, each further
    /// system call adds a tenth to the time of opening (experiment 43 in `docs/perf-experiments.md`).
    fn open_path(
        &self,
        path: &Path,
        mapping: MapMode,
        cancel: Option<&CancelToken>,
        budget: &Budget,
    ) -> Result<OpenedPath> {
        // `open` would wait for the writer of a FIFO, whatever is cancelled meanwhile
        let file = match with_descriptor(|| open_without_waiting(path)) {
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
            let stream = StreamSource::of_pipe(file, cancel);
            return Ok(OpenedPath::File(Arc::new(stream)));
        }
        let source = source_of(file, meta.len(), mapping, budget);
        Ok(OpenedPath::File(source))
    }

    fn check_directory(&self, directory: &Path, path: &Path) -> Result<()> {
        check_directory(directory, path)
    }

    fn open_named(
        &self,
        path: NamedPath<'_>,
        mapping: MapMode,
        budget: &Budget,
    ) -> Result<Arc<dyn Source>> {
        let (file, len) = open_named(path)?;
        Ok(source_of(file, len, mapping, budget))
    }

    fn read_whole<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
        read_named(path, budget, what)
    }

    fn read_held<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>, Option<File>)> {
        let (file, len) = open_named(path)?;
        let (text, charge) = read_opened(&file, len, budget, what)?;
        Ok((text, charge, Some(file)))
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// The source of a regular file.
fn source_of(file: File, len: u64, mapping: MapMode, budget: &Budget) -> Arc<dyn Source> {
    // charged like every other allocation; a file that exceeds the budget is read in windows instead
    let keep = len <= SMALL && budget.memory(len, "a small file").is_ok();
    #[cfg(feature = "mmap")]
    if mapping.mmap {
        let source = crate::read::source::MmapSource::with_len(file, len, keep);
        return Arc::new(source.private(mapping.private));
    }
    let _ = (mapping.mmap, mapping.private); // without maps they have no effect
    Arc::new(FileSource::with_len(file, len, keep))
}
