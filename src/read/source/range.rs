//! A byte range of a source as a source of its own: a file inside a file.

use std::io;

use super::Source;

/// The bytes of a source from an offset on.
pub(crate) struct RangeSource<'s> {
    source: &'s dyn Source,
    start: u64,
    len: u64,
}

impl<'s> RangeSource<'s> {
    /// A range that lies inside of the source.
    pub(crate) fn new(source: &'s dyn Source, start: u64, len: u64) -> Self {
        Self { source, start, len }
    }
}

impl Source for RangeSource<'_> {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(start)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        self.source
            .read_at(self.start.saturating_add(start), &mut buf[..len])
    }

    fn in_memory(&self) -> Option<&[u8]> {
        let [from, len] = [self.start, self.len].map(usize::try_from);
        self.source.in_memory()?.get(from.ok()?..)?.get(..len.ok()?)
    }
}
