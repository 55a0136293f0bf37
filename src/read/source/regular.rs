//! Files that are found by name next to others and not named by the caller: regular ones only.
//!
//! A name in an index, or of a configuration, may lead to a FIFO, on which `open` waits for a writer, or to a device, which
//! has length 0 and can be read without end. So the file is opened without waiting, and what is not regular is refused. A link
//! may lead to a file that its maker cannot read, and this process can: it is followed only where the maker could go.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

pub(super) use anamnesis_os::files::open_without_waiting;
use anamnesis_os::links;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, TemporaryCharge, zeroed};

use super::file_system::NamedPath;
use super::fill;
use super::open_files::with_descriptor;

/// Opens a regular file of the caller's own and returns its length.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64)> {
    regular(with_descriptor(|| open_without_waiting(path))?)
}

/// Opens a regular file by a path that the caller or a directory names, and returns its length.
pub(crate) fn open_named(path: NamedPath<'_>) -> Result<(File, u64)> {
    let (directory, path) = match path {
        NamedPath::Given(path) => return open_regular(path),
        NamedPath::Below { directory, path } => (directory, path),
    };
    let below = |directory| with_descriptor(|| links::open_below(directory, path));
    let opened = match below(directory) {
        // its own directory holds the file at any other path
        Err(e) if e.kind() == ErrorKind::InvalidInput && !path.starts_with(directory) => {
            below(path.parent().unwrap_or(Path::new("")))
        }
        opened => opened,
    };
    regular(opened?)
}

/// Refuses a directory that the contents of another one name, if its links are not followed.
pub(crate) fn check_directory(directory: &Path, path: &Path) -> Result<()> {
    let checked = links::check_below(directory, path);
    checked.map_err(|e| Error::from(e).in_file(path))
}

/// An open file and its length, if it is a regular one.
pub(crate) fn regular(file: File) -> Result<(File, u64)> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        let what = if meta.is_dir() {
            "a directory"
        } else {
            "a pipe, a socket or a device"
        };
        return Err(Error::unsupported(format!(
            "{what} is in the place of a regular file"
        )));
    }
    Ok((file, meta.len()))
}

/// Reads a regular file whole, and charges its length while the second value lives. No more is read than the length
/// that the file had when it was opened, so that a file that grows, or a file of `/proc`, has an end.
pub(crate) fn read_regular<'b>(
    path: &Path,
    budget: &'b Budget,
    what: &str,
) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
    read_named(NamedPath::Given(path), budget, what)
}

/// The same, by a path that the caller or a directory names.
pub(crate) fn read_named<'b>(
    path: NamedPath<'_>,
    budget: &'b Budget,
    what: &str,
) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
    let (file, len) = open_named(path)?;
    read_opened(&file, len, budget, what)
}

/// The same, of a regular file that is open and was `len` bytes long.
pub(crate) fn read_opened<'b>(
    mut file: &File,
    len: u64,
    budget: &'b Budget,
    what: &str,
) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
    let (mut text, charge) = charged_buffer(len, budget, what)?;
    // in one call; `read_to_end` begins with 8 KiB
    let read = fill(&mut text, |buf| file.read(buf))?;
    // shorter if the file has shrunk since
    text.truncate(read);
    Ok((text, charge))
}

/// A buffer for a file of this length, of zeros, which is charged while the second value lives.
pub(super) fn charged_buffer<'b>(
    len: u64,
    budget: &'b Budget,
    what: &str,
) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
    let charge = budget.temporary(len, what)?;
    // may fail: the length is a file's
    let buffer = usize::try_from(len).ok().and_then(zeroed);
    let buffer =
        buffer.ok_or_else(|| Error::unsupported(format!("{what} does not fit in memory")))?;
    Ok((buffer, charge))
}
