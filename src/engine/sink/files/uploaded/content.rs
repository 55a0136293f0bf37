//! The content of companion files, read piece by piece.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::engine::companions::{CompanionContent, open_companion};
use crate::read::source::fill;

/// Bytes of a companion file that are compared or copied at a time.
pub(super) const COPIED: usize = 1 << 20;

/// The content of a companion file, piece by piece.
pub(super) struct ContentReader<'c> {
    pub(super) len: u64,
    content: OpenContent<'c>,
}

enum OpenContent<'c> {
    Bytes(std::slice::Chunks<'c, u8>),
    File {
        file: File,
        path: &'c Path,
        left: u64,
        buffer: Vec<u8>,
    },
}

impl<'c> ContentReader<'c> {
    pub(super) fn open(content: &'c CompanionContent) -> Result<Self> {
        Ok(match content {
            CompanionContent::Bytes(bytes) => Self {
                len: bytes.len() as u64,
                content: OpenContent::Bytes(bytes.chunks(COPIED)),
            },
            CompanionContent::Copy(path) => {
                let (file, len) = open_companion(path).map_err(|e| e.in_file(path))?;
                let content = OpenContent::File {
                    file,
                    path,
                    left: len,
                    buffer: vec![0; COPIED],
                };
                Self { len, content }
            }
        })
    }

    /// The next bytes, of which there are [`COPIED`] except at the end.
    pub(super) fn next(&mut self) -> Result<&[u8]> {
        match &mut self.content {
            OpenContent::Bytes(pieces) => Ok(pieces.next().unwrap_or_default()),
            OpenContent::File {
                file,
                path,
                left,
                buffer,
            } => {
                let take = usize::try_from(*left).map_or(COPIED, |left| left.min(COPIED));
                let buffer = &mut buffer[..take];
                let in_source = |e: io::Error| Error::from(e).in_file(path);
                let read = fill(buffer, |buf| file.read(buf)).map_err(in_source)?;
                // the source is shortened while it is copied
                if read < take {
                    return Err(in_source(io::ErrorKind::UnexpectedEof.into()));
                }
                *left -= take as u64;
                Ok(buffer)
            }
        }
    }
}
