//! The [`Policy`] trait, and what passes between a policy and the runtime.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::{Event, EventKind, FileEntry, Namespace, RangeList};

/// An access to a file of the namespace. Adjacent accesses of one thread are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Whether the access missed the page cache.
    pub kind: EventKind,
    /// The file, relative to the root of the namespace.
    pub path: Arc<Path>,
    /// Offset of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// The accessing process.
    pub pid: u32,
    /// The accessing thread.
    pub tid: u32,
    /// Time of the access in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

impl FileAccess {
    /// The access that `event` reports, to the file of `entry`.
    pub fn new(event: &Event, entry: &FileEntry) -> Self {
        Self {
            kind: event.kind,
            path: Arc::clone(&entry.path),
            start: event.start,
            len: event.len,
            pid: event.pid,
            tid: event.tid,
            time: event.time,
        }
    }
}

/// The environment of a policy.
#[derive(Clone, Debug)]
pub struct PolicyContext {
    /// The directory that the policy is registered for.
    pub namespace: Arc<Namespace>,
    /// The configuration string passed at registration.
    pub config: String,
    /// The memory limit in bytes: the runtime's threshold times the limit of the service's control group or of the
    /// machine. Covers the page cache and all other memory in use.
    pub memory: u64,
}

/// Which of its functions a policy needs called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interests {
    /// [`Policy::prefetch`] at each miss. If unset, only the kernel reads ahead.
    pub prefetch: bool,
    /// [`Policy::evict`] under memory pressure. If unset, only the kernel evicts.
    pub evict: bool,
    /// [`Policy::touch`] at each access, not only at misses. Costs readers up to 3 % (EXPERIMENTS.md).
    pub touch: bool,
    /// Accesses like `touch`'s, and also pages that the kernel read ahead, so that a recording of cold files is complete.
    pub recording: bool,
    /// [`Policy::idle`] when no call is queued.
    pub idle: bool,
}

/// A list of ranges to prefetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchRequest {
    /// The ranges, in the order in which to read them.
    pub ranges: RangeList,
    /// The queue that reads them. A new list for a queue replaces its previous one; the queues are served in turn.
    pub queue: u32,
}

/// The work of a policy for one model: a part of the status of its runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceReport {
    /// The path of the model relative to the policy's directory; empty if it is that directory.
    pub model: String,
    /// Its activity, in a word.
    pub phase: String,
    /// Why, where that is not as intended.
    pub reason: Option<String>,
    /// Bytes that the service will read, each counted once; 0 if it is not known.
    pub wanted: u64,
    /// Bytes of accesses that were recorded.
    pub recorded: u64,
    /// The files of the model, relative to the policy's directory.
    #[serde(skip)]
    pub files: Vec<Arc<Path>>,
}

/// A page-cache policy: decides what to prefetch and evict in one directory.
///
/// All functions are called on one thread of the policy's own, one call at a time, each with a deadline
/// ([`PolicyLimits`](crate::PolicyLimits)). A policy that panics, exceeds a deadline, or returns a range outside of the
/// files of its namespace is deregistered.
pub trait Policy: Send {
    /// Which functions to call. Read after each call.
    fn interests(&self) -> Interests;

    /// Called once, at registration.
    ///
    /// # Errors
    ///
    /// An error rejects the registration; its text is reported.
    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        let _ = context;
        Ok(())
    }

    /// Called after files of the directory were created, removed or changed, with the new state of the directory. The
    /// default implementation keeps the previous file list; ranges of removed files are skipped.
    ///
    /// # Errors
    ///
    /// An error deregisters the policy.
    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        let _ = context;
        Ok(())
    }

    /// Called last, when the registration ends.
    fn exit(&mut self) {}

    /// Called when the service is about to start. Returns what to prefetch before the first miss, one list per queue.
    fn start(&mut self) -> Vec<PrefetchRequest> {
        Vec::new()
    }

    /// Called at a miss, while the accessing thread waits. Returns what to prefetch next; `None` leaves the prefetch in
    /// progress unchanged.
    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        let _ = miss;
        None
    }

    /// Called under memory pressure, at a miss or (`None`) periodically. Returns what to evict.
    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        let _ = miss;
        None
    }

    /// Called at an access, cached or not. Returns what to prefetch next; `None` leaves the prefetch in progress
    /// unchanged. A policy that prefetches a bounded window ahead of its readers advances the window here, because
    /// accesses to prefetched bytes are no misses.
    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        let _ = access;
        None
    }

    /// Called when no call is queued, and at least once a second, if the policy's [interests](Self::interests) say so. The
    /// place for work that takes longer than the deadline of an access. `now` is the time in nanoseconds of
    /// `CLOCK_MONOTONIC`, as in [`FileAccess::time`]. Returns what to prefetch next, one list per queue.
    fn idle(&mut self, now: u64) -> Vec<PrefetchRequest> {
        let _ = now;
        Vec::new()
    }

    /// The work of the policy, for the status of its runtime. Called when a status is requested, and between two other
    /// calls.
    fn report(&self) -> Vec<ServiceReport> {
        Vec::new()
    }

    /// Called after each of the functions above. A returned error deregisters the policy, and the result of that
    /// function is discarded.
    fn failed(&mut self) -> Option<String> {
        None
    }
}
