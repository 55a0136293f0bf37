//! The container formats: one file each, one line each in [`FORMATS`].
//!
//! A format is a static row: a name, file name extensions, and two functions, `probe` and `read`. `docs/extending.md`
//! tells how to add one.

mod archive;
pub(crate) mod dcp;
pub mod gguf;
pub mod npy;
pub mod npz;
mod pickle;
pub mod pth;
pub mod safetensors;
mod sniff;

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::Catalog;
use crate::read::objects::ObjectTree;
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;

pub(crate) use archive::{Archive, DirectoryEntry, local_payload};
pub(crate) use pickle::globals::TorchDtype;
pub use sniff::begins_as_model;
pub(crate) use sniff::{is_archive, is_lfs_pointer, not_tensors, resembles};

/// Every format, in probing order. safetensors comes before PyTorch: the length of its header may begin with the two
/// bytes that a pickle begins with (640 is `80 02`), and only the safetensors probe looks at the bytes after them.
pub static FORMATS: &[&Format] = &[
    &gguf::FORMAT,
    &npy::FORMAT,
    &npz::FORMAT,
    &safetensors::FORMAT,
    &pth::FORMAT,
];

/// A container format: how to recognise it and how to read its header.
pub struct Format {
    /// The name in catalogs, errors and JSON.
    pub name: &'static str,
    /// The usual file name extensions. The first bytes of a file decide its format. If no format recognises them, the
    /// extension chooses the reader that reports the error.
    pub extensions: &'static [&'static str],
    pub(crate) probe: fn(&Head<'_>) -> bool,
    pub(crate) read: fn(&mut Cursor<'_>, Head<'_>) -> Result<Catalog>,
}

/// The beginning of a file, which probes look at, and its directory if it is a zip archive.
pub(crate) struct Head<'a> {
    /// The first bytes: at most [`Head::LEN`].
    pub(crate) bytes: &'a [u8],
    /// Length of the file, if known.
    pub(crate) len: Option<u64>,
    /// The directory, if the file is a zip archive.
    pub(crate) archive: Option<Archive>,
    /// Whether objects of unknown classes are kept; see [`OpenOptions::opaque`](crate::OpenOptions::opaque).
    pub(crate) opaque: bool,
    /// Whether to count the bytes of an archive that belong to no member.
    pub(crate) gaps: bool,
}

/// How a file is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadOptions {
    /// The format, if the caller gives it.
    pub(crate) format: Option<&'static Format>,
    /// Whether objects of unknown classes are kept.
    pub(crate) opaque: bool,
    /// Whether to count the bytes of a PyTorch archive that belong to no member, which reads the header of each.
    pub(crate) gaps: bool,
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
    pub(crate) fn claims_extension(&self, path: &Path) -> bool {
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

/// Reads the header of one file. The format is detected unless the options have it. The checks that hold for
/// every format are made here: byte ranges are inside the file, names are unique.
pub(crate) fn read_file(
    cursor: &mut Cursor<'_>,
    path: Option<&Path>,
    options: ReadOptions,
) -> Result<Catalog> {
    let mut first = [0; Head::LEN];
    let (format, head) = detect(cursor, &mut first, path, options)?;
    let catalog = (format.read)(cursor, head).map_err(|e| e.in_format(format.name))?;
    cursor.source().settled();
    checked(cursor, path, format, catalog)
}

/// Whether a file without a telling name has the first bytes of a format. Pickles of all programs begin alike, so that one counts
/// only with an ending of PyTorch's, and an archive only by its members.
pub(crate) fn looks_like_tensors(
    source: &dyn Source,
    has_pickle_ending: bool,
    budget: &Budget,
) -> bool {
    let mut cursor = Cursor::new(source, budget);
    let mut first = [0; Head::LEN];
    let Ok((format, head)) = detect(&mut cursor, &mut first, None, ReadOptions::default()) else {
        return false;
    };
    match format.name {
        name if name == pth::FORMAT.name => has_pickle_ending || head.archive.is_some(),
        // eight bytes of any file may be a length that fits: the text behind it begins as a header's does
        name if name == safetensors::FORMAT.name => {
            let text = head.bytes.get(8..).unwrap_or_default().trim_ascii_start();
            let inside = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
            inside.is_some_and(|inside| matches!(inside.first(), Some(b'"' | b'}')))
        }
        // an archive without members may be of any program
        name if name == npz::FORMAT.name => head
            .archive
            .is_some_and(|archive| !archive.entries.is_empty()),
        _ => true,
    }
}

/// The object of a PyTorch file, and a catalog of the storages that its tensors are views of. `None` for other formats.
/// With `named`, tensors refer to the rows of the catalog that [`read_file`] makes.
pub(crate) fn read_objects(
    cursor: &mut Cursor<'_>,
    path: Option<&Path>,
    options: ReadOptions,
    named: bool,
) -> Result<Option<(ObjectTree, Catalog)>> {
    let mut first = [0; Head::LEN];
    let (format, head) = detect(cursor, &mut first, path, options)?;
    if format.name != pth::FORMAT.name || (head.archive.is_none() && !(format.probe)(&head)) {
        return Ok(None);
    }
    let (tree, catalog) =
        pth::objects(cursor, &head, named).map_err(|e| e.in_format(format.name))?;
    checked(cursor, path, format, catalog).map(|catalog| Some((tree, catalog)))
}

/// The format of a file, and its beginning. Leaves the cursor at the first byte.
fn detect<'a>(
    cursor: &mut Cursor<'_>,
    first: &'a mut [u8; Head::LEN],
    path: Option<&Path>,
    options: ReadOptions,
) -> Result<(&'static Format, Head<'a>)> {
    let n = cursor.peek_into(first)?;
    let bytes = &first[..n];
    // the extension is a fallback only: `.bin` and `.pt` files are renamed often
    let claimed = path.and_then(|path| FORMATS.iter().find(|f| f.claims_extension(path)).copied());
    // NPZ and PyTorch archives are distinguished by their members, so the directory is read before the probes
    let archive = if is_archive(bytes) {
        // the name of the container, since it is not known yet whether the archive is NPZ or PyTorch. A file that begins
        // like an archive is nothing else, so the error of its directory is the useful one
        Some(Archive::read(cursor).map_err(|e| e.in_format("zip"))?)
    } else {
        None
    };
    let head = Head {
        bytes,
        len: cursor.len(),
        archive,
        opaque: options.opaque,
        gaps: options.gaps,
    };
    let format = match options
        .format
        .or_else(|| FORMATS.iter().copied().find(|f| (f.probe)(&head)))
    {
        Some(format) => format,
        None => match (not_tensors(bytes), claimed) {
            // the length of a safetensors header can equal a short magic number such as `MZ`: if the extension and the
            // `{` agree, the file is a cut-off safetensors file
            (Some(_), Some(format))
                if bytes.get(8) == Some(&b'{') && format.name == safetensors::FORMAT.name =>
            {
                format
            }
            (Some(what), _) => return Err(sniff::unknown(what)),
            // the extension names a format, whose reader reports what is wrong
            (None, Some(format)) if head.archive.is_none() => format,
            (None, _) => return Err(sniff::unknown(resembles(&head))),
        },
    };
    // `Archive::read` left the cursor at the end of the file; parsers of the other formats begin at the first byte
    cursor.seek(0);
    Ok((format, head))
}

/// Makes the checks that hold for every format.
fn checked(
    cursor: &Cursor<'_>,
    path: Option<&Path>,
    format: &Format,
    mut catalog: Catalog,
) -> Result<Catalog> {
    // the length of a stream is known only here, after its header: ranges are checked against it once, for every format
    let len = cursor.source().finish().map_err(Error::from)?;
    let checked = catalog
        .check_extent(len)
        .and_then(|()| catalog.index_names(cursor.budget()));
    checked.map_err(|e| e.in_format(format.name))?;
    catalog.files = vec![crate::read::catalog::FileInfo {
        path: path.map(Path::to_owned),
        nbytes: len,
    }];
    Ok(catalog)
}
