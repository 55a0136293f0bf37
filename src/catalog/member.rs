//! Storages inside a file, and what must hold before their bytes are believed.

use std::sync::Arc;

use super::ByteRange;

/// A storage inside a file: a member of a zip archive, or a storage of a legacy PyTorch stream.
/// Several tensors may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its stored bytes.
    pub bytes: ByteRange,
    /// Bytes of its content: more than `bytes.len` if deflated.
    pub inflated: u64,
    /// What must hold in the file before its bytes are believed.
    pub guard: Guard,
}

impl Member {
    /// What is checked in front of its bytes.
    pub(crate) fn front(&self) -> ByteRange {
        let start = match &self.guard {
            Guard::ZipLocal { at, .. } => *at,
            Guard::Count { .. } => self.bytes.start.saturating_sub(8),
        };
        let start = start.min(self.bytes.start);
        ByteRange {
            start,
            len: self.bytes.start - start,
            ..self.bytes
        }
    }
}

/// What stands before a member's bytes, checked when they are first read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// A zip local header at this offset, for this name; the bytes must begin right behind it.
    ZipLocal {
        /// Offset of the local header.
        at: u64,
        /// Name in the central directory.
        name: Arc<str>,
        /// Checksum of the content; `None` where the writer left it out.
        crc32: Option<u32>,
    },
    /// A count of elements (64 bits, little endian) right before the bytes.
    Count {
        /// The number that must stand there.
        elements: u64,
    },
}
