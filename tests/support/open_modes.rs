//! The ways to open a file; all must tell the same.

use std::io::Cursor;
use std::path::Path;

use anamnesis::{Checkpoint, Format, OpenOptions, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    Mapped,
    /// By positioned reads.
    Read,
    Bytes,
    Reader,
    /// As bytes that are said to be of the format.
    FormatGiven,
}

pub const OPEN_MODES: [OpenMode; 5] = [
    OpenMode::Mapped,
    OpenMode::Read,
    OpenMode::Bytes,
    OpenMode::Reader,
    OpenMode::FormatGiven,
];

impl OpenMode {
    /// Whether the file's name and neighbours are known.
    pub fn has_path(self) -> bool {
        matches!(self, Self::Mapped | Self::Read)
    }

    /// Opens this one file, even if it is a part of a split.
    pub fn open(self, path: &Path, format: Option<&'static Format>) -> Result<Checkpoint> {
        let part = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("-of-000"));
        let options = OpenOptions::new().single(part);
        let bytes = || std::fs::read(path).unwrap();
        match (self, format) {
            (Self::Mapped, _) => options.open(path),
            (Self::Read, _) => options.mmap(false).open(path),
            (Self::Bytes, _) | (Self::FormatGiven, None) => Checkpoint::from_bytes(bytes()),
            (Self::Reader, _) => Checkpoint::from_reader(Cursor::new(bytes())),
            (Self::FormatGiven, Some(format)) => OpenOptions::new()
                .format(format)
                .from_reader(Cursor::new(bytes())),
        }
    }
}
