//! Page-cache events, and the [`EventSource`] trait that reports them.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;

/// A file as kernel events identify it. `dev` is the kernel's internal number, `major << 20 | minor`, which differs from
/// the encoding of `st_dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// Device number, `major << 20 | minor`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl Inode {
    /// The inode that a `stat` result describes.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self::from_st_dev(stat.st_dev, stat.st_ino)
    }

    /// Converts the user-space encoding of a device number.
    pub(crate) fn from_st_dev(st_dev: u64, ino: u64) -> Self {
        let (major, minor) = (rustix::fs::major(st_dev), rustix::fs::minor(st_dev));
        Self {
            dev: u64::from(major) << 20 | u64::from(minor),
            ino,
        }
    }
}

/// The event that befell the bytes of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The bytes were accessed and were not in the page cache, so a thread waits for the device.
    Miss,
    /// The bytes were accessed, whether or not they were in the page cache.
    Touch,
    /// A process opened or mapped the file.
    Open,
}

/// One access to a file, as an [`EventSource`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The file.
    pub inode: Inode,
    /// Offset of the first accessed byte, aligned to the page size.
    pub start: u64,
    /// Length in bytes, a multiple of the page size; 0 if the source does not report it.
    pub len: u64,
    /// The accessing process.
    pub pid: u32,
    /// The accessing thread.
    pub tid: u32,
    /// Time of the access in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

/// Expands a byte range to whole pages. Returns the start and the length; both stay within `u64`.
pub(crate) fn page_aligned(start: u64, len: u64) -> (u64, u64) {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let first = start / page * page;
    let end = start
        .saturating_add(len)
        .checked_next_multiple_of(page)
        .unwrap_or(u64::MAX / page * page);
    (first, end.saturating_sub(first))
}

/// Which accesses an [`EventSource`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Misses of `read` and its variants.
    pub read_misses: bool,
    /// Misses of mapped memory.
    pub map_misses: bool,
    /// Every `read`, cached or not.
    pub reads: bool,
    /// First accesses to mapped pages, at the granularity at which the kernel maps them.
    pub first_touches: bool,
    /// Accesses that the source does not report, as a phrase for messages ("… does not report {limitations}").
    pub limitations: &'static str,
}

/// Which accesses a source is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Accesses that miss the page cache, with low latency.
    Misses,
    /// All accesses, cached or not.
    Accesses,
    /// All accesses and all insertions into the page cache, so that a recording of cold files is complete.
    Recording,
}

/// Reports accesses to files. The implementations are in [`source`](crate::source).
pub trait EventSource: Debug + Send {
    /// The name by which the command line selects this source.
    fn name(&self) -> &'static str;

    /// Which accesses this source reports.
    fn capabilities(&self) -> Capabilities;

    /// Replaces the set of watched files. Called again after each scan of the namespace that found changes.
    ///
    /// # Errors
    ///
    /// The system does not allow the files to be watched.
    fn watch(&mut self, files: &[Inode]) -> Result<()>;

    /// The accesses that are needed have changed. A source that reports only some modes, or always all, ignores this.
    ///
    /// # Errors
    ///
    /// The mode is not available; the source then continues with the mode that it had.
    fn set_mode(&mut self, mode: CaptureMode) -> Result<()> {
        let _ = mode;
        Ok(())
    }

    /// Waits until there are events, the [`Waker`] is used, or `timeout` has passed, and appends the events to `into`,
    /// oldest first. Returns `Ok(false)` if there will be no more events, as at the end of a replayed log.
    ///
    /// # Errors
    ///
    /// The connection to the kernel failed, or a log is malformed.
    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool>;

    /// How many events were lost since the source was opened.
    fn lost(&self) -> u64;

    /// A handle that ends a [`wait`](Self::wait) from another thread.
    fn waker(&self) -> Waker;
}

/// Ends the [`wait`](EventSource::wait) of an event source from another thread. An eventfd: a wake-up that arrives while
/// no thread waits ends the next wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker, and the descriptor that becomes readable when it is used.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new() -> io::Result<(Self, Arc<OwnedFd>)> {
        use rustix::event::{EventfdFlags, eventfd};
        // non-blocking, so that `drain` returns at once where the waker was not used
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Self(Arc::clone(&fd)), fd))
    }

    /// Ends the current wait, or the next one if no thread is waiting.
    pub fn wake(&self) {
        // the write fails only if the counter is full, and then the descriptor is readable already
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_ranges_expand_to_whole_pages() {
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(page_aligned(100, 1), (0, page));
        assert_eq!(page_aligned(page, page + 1), (page, 2 * page));
        assert_eq!(page_aligned(page, 0), (page, 0));
        let (start, len) = page_aligned(u64::MAX - 1, u64::MAX);
        assert!(start.checked_add(len).is_some());
    }
}
