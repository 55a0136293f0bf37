//! How bytes were really read, which may differ from what the loader was configured to do.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::base::sync::{AtomicBool, PoisonMutex};

/// The means by which the reads are performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Nothing: bytes are borrowed from the mapped file, or from memory.
    Mmap,
    /// Positioned reads of one or more threads.
    Threads,
    /// io_uring.
    IoUring,
    /// Requests to servers, many at a time.
    Requests,
}

/// Whether reads bypass the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// No read does.
    No,
    /// Reads did until the file system refused one.
    Partly,
    /// All reads do.
    All,
}

/// How a loader read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoReport {
    /// The means by which the reads were performed.
    pub backend: Backend,
    /// Whether they bypassed the page cache.
    pub direct: DirectIo,
    /// Why this is not what the loader was configured to do; `None` where it is.
    pub fallback: Option<String>,
}

impl Backend {
    /// `map`, `threads`, `io_uring`, `requests`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "map",
            Self::Threads => "threads",
            Self::IoUring => "io_uring",
            Self::Requests => "requests",
        }
    }
}

impl DirectIo {
    /// `no`, `partly`, `all`.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Partly => "partly",
            Self::All => "all",
        }
    }
}

impl fmt::Display for DirectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "through the page cache",
            Self::Partly => "partly direct I/O",
            Self::All => "direct I/O",
        })
    }
}

impl fmt::Display for IoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.name())?;
        // a page cache is in the way of files of this machine only
        if self.backend != Backend::Requests {
            write!(f, ", {}", self.direct)?;
        }
        self.fallback
            .as_ref()
            .map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

/// Collects an [`IoReport`] from the threads that read. The flags are relaxed: they are reported, and order nothing.
#[derive(Debug)]
pub(super) struct ReportBuilder {
    backend: Backend,
    direct: AtomicBool,
    buffered: AtomicBool,
    fallback: PoisonMutex<Option<String>>,
}

impl ReportBuilder {
    pub(super) fn new(backend: Backend, fallback: Option<String>) -> Self {
        let no = || AtomicBool::new(false);
        Self {
            backend,
            direct: no(),
            buffered: no(),
            fallback: PoisonMutex::new(fallback),
        }
    }

    /// Records that a direct read succeeded.
    #[cfg(target_os = "linux")]
    pub(super) fn direct_read(&self) {
        // set once per read and never cleared, so that the order of the two flags does not matter
        self.direct.store(true, Ordering::Relaxed);
    }

    /// Records that a file which was to be read directly is read through the page cache from now on.
    pub(super) fn fall_back_to_buffered(&self, why: String) {
        self.buffered.store(true, Ordering::Relaxed);
        self.fall_back(why);
    }

    /// Records a fallback. The first reason is kept: later ones follow from it.
    pub(super) fn fall_back(&self, why: String) {
        self.fallback
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
    }

    pub(super) fn report(&self) -> IoReport {
        let direct = match (
            self.direct.load(Ordering::Relaxed),
            self.buffered.load(Ordering::Relaxed),
        ) {
            // no direct read succeeded, whatever was configured
            (false, _) => DirectIo::No,
            (true, true) => DirectIo::Partly,
            (true, false) => DirectIo::All,
        };
        let fallback = self
            .fallback
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        IoReport {
            backend: self.backend,
            direct,
            fallback,
        }
    }
}
