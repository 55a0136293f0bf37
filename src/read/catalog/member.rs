//! Storages inside a file, and the integrity check that precedes the use of their bytes.

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
    /// The check of the file that precedes the use of these bytes.
    pub check: IntegrityCheck,
}

impl Member {
    /// The byte range in front of the content that the integrity check reads.
    pub(crate) fn front(&self) -> ByteRange {
        let start = match &self.check {
            IntegrityCheck::ZipLocal { at, .. } => *at,
            IntegrityCheck::Count { .. } => self.bytes.start.saturating_sub(8),
        };
        // a header behind its content is refused when it is read; the range must not wrap before
        let start = start.min(self.bytes.start);
        ByteRange {
            start,
            len: self.bytes.start - start,
            ..self.bytes
        }
    }
}

/// A check of what precedes a member's bytes. It is made when they are first read, not when the file is opened, since
/// each local header of a cold archive costs a disk read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntegrityCheck {
    /// A zip local header at this offset, for this name; the content must begin directly after it.
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
        /// The expected number.
        elements: u64,
    },
}
