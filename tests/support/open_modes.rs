//! The APIs that open a checkpoint file. All of them must give the same catalog or the same error.

use std::io::Cursor;
use std::path::Path;

use anamnesis::{Checkpoint, Format, OpenOptions, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// From its path, mapped.
    Mapped,
    /// From its path, mapped privately.
    Private,
    /// From its path, by positioned reads.
    Read,
    Bytes,
    Reader,
    /// From a reader, with the format given by the caller.
    FormatGiven,
}

pub const OPEN_MODES: [OpenMode; 6] = [
    OpenMode::Mapped,
    OpenMode::Private,
    OpenMode::Read,
    OpenMode::Bytes,
    OpenMode::Reader,
    OpenMode::FormatGiven,
];

impl OpenMode {
    /// Whether the library can use the file name and sibling files.
    pub fn has_path(self) -> bool {
        matches!(self, Self::Mapped | Self::Private | Self::Read)
    }

    /// Opens this one file, even if it is one shard or split of several.
    pub fn open(self, path: &Path, format: Option<&'static Format>) -> Result<Checkpoint> {
        let one_of_several = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("-of-000"));
        let options = OpenOptions::new().single(one_of_several);
        let bytes = || std::fs::read(path).unwrap();
        match (self, format) {
            (Self::Mapped, _) => options.open(path),
            (Self::Private, _) => options.private(true).open(path),
            (Self::Read, _) => options.mmap(false).open(path),
            (Self::Bytes, _) | (Self::FormatGiven, None) => Checkpoint::from_bytes(bytes()),
            (Self::Reader, _) => Checkpoint::from_reader(Cursor::new(bytes())),
            (Self::FormatGiven, Some(format)) => OpenOptions::new()
                .format(format)
                .from_reader(Cursor::new(bytes())),
        }
    }
}
