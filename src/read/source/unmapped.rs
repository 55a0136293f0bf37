//! A source that is read and never mapped.

use std::io;
use std::sync::Arc;

use super::{ConcurrentReads, Source};

/// Another source without its maps: a file that its writers change where it is may become shorter at any time, and touching a page
/// of a map behind its end ends the process, where a read is an error.
pub(crate) struct UnmappedSource(pub(crate) Arc<dyn Source>);

impl Source for UnmappedSource {
    fn len(&self) -> Option<u64> {
        self.0.len()
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(start, buf)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.0.in_memory()
    }

    fn will_need(&self, start: u64, len: u64) {
        self.0.will_need(start, len);
    }

    fn dont_need(&self, start: u64, len: u64) {
        self.0.dont_need(start, len);
    }

    fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        self.0.scattered(ranges);
    }

    fn settled(&self) {
        self.0.settled();
    }

    fn held(&self) -> u64 {
        self.0.held()
    }

    fn ready(&self) -> io::Result<()> {
        self.0.ready()
    }

    fn forward_only(&self) -> bool {
        self.0.forward_only()
    }

    fn finish(&self) -> io::Result<u64> {
        self.0.finish()
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentReads> {
        self.0.concurrent()
    }

    #[cfg(unix)]
    fn as_fd(&self) -> Option<super::SourceFd<'_>> {
        self.0.as_fd()
    }
}
