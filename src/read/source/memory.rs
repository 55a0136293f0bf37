//! Sources in memory.

use std::io;

use super::{Source, copy_at};

/// Bytes in memory: a `Vec<u8>`, a `Bytes`, an `Arc<[u8]>`, a `&'static [u8]`.
///
/// Tensors borrow from these bytes; nothing is copied.
pub struct MemorySource<B>(B);

impl<B: AsRef<[u8]> + Send + Sync> MemorySource<B> {
    /// A source of these bytes, which are not copied.
    pub fn new(bytes: B) -> Self {
        Self(bytes)
    }
}

impl<B: AsRef<[u8]> + Send + Sync> Source for MemorySource<B> {
    fn len(&self) -> Option<u64> {
        Some(self.0.as_ref().len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(copy_at(self.0.as_ref(), start, buf))
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(self.0.as_ref())
    }
}
