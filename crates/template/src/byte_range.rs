//! A contiguous range of bytes in one file.

/// A run of bytes in one file of a checkpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// The file: an index into the files of the checkpoint (`Catalog::files`) or of the
    /// [`Template`](crate::Template).
    pub file: u32,
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// Bytes `start..start + len` of file 0.
    pub fn new(start: u64, len: u64) -> Self {
        Self {
            file: 0,
            start,
            len,
        }
    }

    /// Offset of the first byte after the range.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}
