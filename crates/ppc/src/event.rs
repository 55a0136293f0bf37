//! What happened to the page cache, and the trait of those who tell.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;

/// A file, as the kernel's events name it. `dev` is the kernel's own number, `major << 20 | minor`, not `st_dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// Device, `major << 20 | minor`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl Inode {
    /// Of a file, from what `stat` says of it.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        let (major, minor) = (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        );
        Self {
            dev: u64::from(major) << 20 | u64::from(minor),
            ino: stat.st_ino,
        }
    }
}

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes were asked for that the page cache does not have: somebody waits for the device.
    Miss,
    /// Bytes were asked for, in the page cache or not.
    Touch,
    /// A process opened or mapped the file.
    Open,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it tells.
    pub kind: Kind,
    /// Of which file.
    pub inode: Inode,
    /// The first byte that was asked for; whole pages.
    pub start: u64,
    /// How many bytes; 0 where the source cannot say.
    pub len: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

/// What a source sees, for people and for choosing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// It tells misses of `read`.
    pub read_misses: bool,
    /// It tells misses of mapped memory.
    pub map_misses: bool,
    /// It tells every `read`.
    pub reads: bool,
    /// It tells first touches of mapped memory, as far as the kernel maps page by page.
    pub maps: bool,
    /// What it cannot see, in words.
    pub blind: &'static str,
}

/// Somebody who tells events. One file each under `source/`.
pub trait EventSource: Debug + Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it sees.
    fn sight(&self) -> Sight;

    /// From now on tells of these files only; called again when the namespace was scanned anew.
    fn watch(&mut self, files: &[Inode]) -> Result<()>;

    /// Waits until there is an event, the [`Waker`] was used, or `timeout` is over, and appends what happened, oldest
    /// first. `Ok(false)`: there will be no more (a replayed log at its end).
    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool>;

    /// Events that happened and were not told, since the beginning.
    fn lost(&self) -> u64;

    /// Ends a [`wait`](Self::wait) from another thread.
    fn waker(&self) -> Waker;
}

/// Ends the wait of an [`EventSource`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker, and the descriptor that becomes readable when it is used.
    pub fn new() -> io::Result<(Self, Arc<OwnedFd>)> {
        use rustix::event::{EventfdFlags, eventfd};
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Self(Arc::clone(&fd)), fd))
    }

    /// Ends the wait that is going on, or the next.
    pub fn wake(&self) {
        // full means that it is awake already
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
