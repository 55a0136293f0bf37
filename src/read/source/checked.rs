//! A source of the caller's, held to the contract of [`Source`].

use std::io;

use zeropool::DividedBuffer;

use super::{ConcurrentReads, Source, not_longer, uninterrupted};
use crate::base::sync::OnceLock;

/// A source whose answers are checked: everything behind it relies on them. It has one length, returns at most the bytes
/// that were requested, ends after [`MAX_INTERRUPTIONS`](super::MAX_INTERRUPTIONS), and borrows all of its bytes or none.
pub(crate) struct CheckedSource<S> {
    source: S,
    /// The first length that the source stated: the catalog was compared with it.
    len: OnceLock<u64>,
    /// Whether the descriptor is one that can be read at offsets.
    #[cfg(unix)]
    fd_is_file: OnceLock<bool>,
}

impl<S: Source> CheckedSource<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            len: OnceLock::new(),
            #[cfg(unix)]
            fd_is_file: OnceLock::new(),
        }
    }

    /// The slice, if it is as long as the source: offsets of the catalog are then inside it.
    fn whole<'s>(&'s self, bytes: Option<&'s [u8]>) -> Option<&'s [u8]> {
        bytes.filter(|bytes| Some(bytes.len() as u64) == self.len())
    }
}

impl<S: Source> Source for CheckedSource<S> {
    fn len(&self) -> Option<u64> {
        match self.len.get() {
            Some(&len) => Some(len),
            None => {
                let len = self.source.len()?;
                Some(*self.len.get_or_init(|| len))
            }
        }
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = uninterrupted(|| self.source.read_at(start, buf))?;
        not_longer(n, buf)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.whole(self.source.in_memory())
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.whole(self.source.mapped())
    }

    fn map_private(&self) -> Option<DividedBuffer> {
        let map = self.source.map_private();
        map.filter(|map| Some(map.len() as u64) == self.len())
    }

    fn will_need(&self, start: u64, len: u64) {
        self.source.will_need(start, len);
    }

    fn dont_need(&self, start: u64, len: u64) {
        self.source.dont_need(start, len);
    }

    fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        self.source.scattered(ranges);
    }

    fn settled(&self) {
        self.source.settled();
    }

    fn held(&self) -> u64 {
        self.source.held()
    }

    fn ready(&self) -> io::Result<()> {
        uninterrupted(|| self.source.ready())
    }

    fn forward_only(&self) -> bool {
        self.source.forward_only()
    }

    fn finish(&self) -> io::Result<u64> {
        let end = uninterrupted(|| self.source.finish())?;
        let len = *self.len.get_or_init(|| end);
        if len != end {
            return Err(io::Error::other(format!(
                "the length of the source changed from {len} to {end} bytes"
            )));
        }
        Ok(end)
    }

    /// Bytes that it passes to its receivers are checked by them.
    fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
        self.source.concurrent()
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<super::SourceFd<'_>> {
        let fd = self.source.as_fd()?;
        // io_uring ignores the offset of a read from a pipe or a socket, and waits for bytes that may never arrive
        let is_file = self.fd_is_file.get_or_init(|| {
            use rustix::fs::FileType;
            rustix::fs::fstat(&fd).is_ok_and(|stat| {
                let kind = FileType::from_raw_mode(stat.st_mode);
                matches!(kind, FileType::RegularFile | FileType::BlockDevice)
            })
        });
        is_file.then_some(fd)
    }
}
