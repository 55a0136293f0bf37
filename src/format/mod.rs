//! The formats: one file each, one line each in [`FORMATS`].
//!
//! A format is a row of facts and two functions: does this look like mine, and what is in it.

mod archive;
pub mod gguf;
pub mod npy;
pub mod npz;
mod pickle;
pub mod pth;
pub mod safetensors;
mod sniff;

use std::path::Path;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;

pub(crate) use archive::{Archive, local_payload};
pub(crate) use sniff::{not_tensors, resembles};

/// Every format, in the order they are tried: safetensors before PyTorch, since the length of a header may begin with
/// the two bytes that a pickle begins with (640 is `80 02`), and what follows tells them apart.
pub static FORMATS: &[&Format] = &[
    &gguf::FORMAT,
    &npy::FORMAT,
    &npz::FORMAT,
    &safetensors::FORMAT,
    &pth::FORMAT,
];

/// A container format: how to recognise it and how to read its header.
pub struct Format {
    /// Its name in catalogs, errors and JSON.
    pub name: &'static str,
    /// Its usual file name extensions. The first bytes decide; an extension only words the error
    /// when they do not.
    pub extensions: &'static [&'static str],
    pub(crate) probe: fn(&Head<'_>) -> bool,
    pub(crate) read: fn(&mut Cursor<'_>, Head<'_>) -> Result<Catalog>,
}

/// The beginning of a file, and its directory if it is an archive.
pub(crate) struct Head<'a> {
    /// The first bytes: at most [`Head::LEN`].
    pub(crate) bytes: &'a [u8],
    /// Length of the file, where known.
    pub(crate) len: Option<u64>,
    /// The members, if it is a zip archive.
    pub(crate) archive: Option<Archive>,
}

impl Head<'_> {
    pub(crate) const LEN: usize = 512;
}

impl Format {
    /// The format with this name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|f| f.name == name).copied()
    }

    /// Whether a file name has one of this format's extensions.
    pub(crate) fn claims(&self, path: &Path) -> bool {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        self.extensions
            .iter()
            .any(|e| e.eq_ignore_ascii_case(extension))
    }
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Format({})", self.name)
    }
}

/// Reads one file: finds its format unless `asked` names it, reads its header, and checks what every
/// format must satisfy.
pub(crate) fn read_file(
    cursor: &mut Cursor<'_>,
    path: Option<&Path>,
    asked: Option<&'static Format>,
) -> Result<Catalog> {
    let mut first = [0; Head::LEN];
    let n = cursor.begin(&mut first)?;
    let bytes = &first[..n];
    let claimed = path.and_then(|path| FORMATS.iter().find(|f| f.claims(path)).copied());
    // Archives are told apart by their members. One that begins with other bytes is tried by its name.
    let maybe_archive = bytes.starts_with(b"PK\x03\x04")
        || bytes.starts_with(b"PK\x05\x06")
        || (n > 0
            && asked
                .or(claimed)
                .is_some_and(|f| f.name == npz::FORMAT.name));
    let archive = if maybe_archive {
        Some(Archive::read(cursor).map_err(|e| e.in_format("zip")))
    } else {
        None
    };
    if bytes.starts_with(b"PK")
        && let Some(Err(e)) = archive
    {
        return Err(e);
    }
    let head = Head {
        bytes,
        len: cursor.len(),
        archive: archive.and_then(Result::ok),
    };
    let format = match asked.or_else(|| FORMATS.iter().copied().find(|f| (f.probe)(&head))) {
        Some(format) => format,
        None => match (not_tensors(bytes), claimed) {
            // short magic numbers are also lengths, so a header that is cut off can begin with one
            (Some(_), Some(format))
                if bytes.get(8) == Some(&b'{') && format.name == safetensors::FORMAT.name =>
            {
                format
            }
            (Some(what), _) => return Err(sniff::unknown(what)),
            // the name says what it should be, so that reader says what is wrong with it
            (None, Some(format)) if head.archive.is_none() => format,
            (None, _) => return Err(sniff::unknown(resembles(&head))),
        },
    };
    cursor.seek(0);
    let mut catalog = (format.read)(cursor, head).map_err(|e| e.in_format(format.name))?;
    let len = cursor.source().finish().map_err(Error::from)?;
    let checked = catalog
        .check_extent(len)
        .and_then(|()| catalog.index_names());
    checked.map_err(|e| e.in_format(format.name))?;
    catalog.files = vec![crate::catalog::FileInfo {
        path: path.map(Path::to_owned),
        nbytes: len,
    }];
    Ok(catalog)
}
