//! How bytes were really brought, which may be in another way than was asked for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// By what bytes are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// Lent from the mapped file, or from memory.
    Map,
    /// Positioned reads of one or more threads.
    Threads,
    /// Reads by io_uring.
    Ring,
}

/// Whether bytes are brought past the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Through it.
    No,
    /// Past it, until the file system refused.
    Partly,
    /// Past it.
    All,
}

/// What a loader did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Way {
    /// By what.
    pub by: By,
    /// Whether past the page cache.
    pub direct: Direct,
    /// Why this is not what the loader was asked for; `None` where it is.
    pub instead: Option<String>,
}

impl By {
    /// `map`, `threads`, `io_uring`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Threads => "threads",
            Self::Ring => "io_uring",
        }
    }
}

impl Direct {
    /// `no`, `partly`, `all`.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Partly => "partly",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "through the page cache",
            Self::Partly => "partly past the page cache",
            Self::All => "past the page cache",
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.by.name(), self.direct)?;
        self.instead
            .as_ref()
            .map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

/// What is noted while bytes are brought, by whoever reads.
#[derive(Debug)]
pub(super) struct Tally {
    by: By,
    direct: AtomicBool,
    buffered: AtomicBool,
    instead: Mutex<Option<String>>,
}

impl Tally {
    pub(super) fn new(by: By, instead: Option<String>) -> Self {
        let no = || AtomicBool::new(false);
        Self {
            by,
            direct: no(),
            buffered: no(),
            instead: Mutex::new(instead),
        }
    }

    /// Something was read past the page cache.
    #[cfg(target_os = "linux")]
    pub(super) fn past(&self) {
        self.direct.store(true, Ordering::Relaxed);
    }

    /// From here on it is not, though it was to be.
    pub(super) fn through(&self, why: String) {
        self.buffered.store(true, Ordering::Relaxed);
        self.instead(why);
    }

    /// Something is done in another way. The first reason explains the others.
    pub(super) fn instead(&self, why: String) {
        self.instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
    }

    pub(super) fn way(&self) -> Way {
        let direct = match (
            self.direct.load(Ordering::Relaxed),
            self.buffered.load(Ordering::Relaxed),
        ) {
            (false, _) => Direct::No,
            (true, true) => Direct::Partly,
            (true, false) => Direct::All,
        };
        let instead = self
            .instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Way {
            by: self.by,
            direct,
            instead,
        }
    }
}
