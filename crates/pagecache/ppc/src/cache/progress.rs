//! Counters of a prefetcher, and the progress of its queues.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// Counters of a [`Prefetcher`](super::Prefetcher) since its start, and its unfinished lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefetchProgress {
    /// Bytes that were read. They were not cached when they were looked up, or were covered by the read-ahead that
    /// reading them continues.
    pub bytes_read: u64,
    /// Bytes that were not read because they were cached.
    pub bytes_skipped: u64,
    /// `pread` and populate calls.
    pub reads: u64,
    /// Lists that were accepted.
    pub submitted: u64,
    /// Lists that were replaced or interrupted before their end.
    pub interrupts: u64,
    /// Files that were not read because they changed since the scan or do not exist.
    pub stale: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Ranges that extend beyond the end of their file.
    pub past_end: u64,
    /// Thread-microseconds spent on pieces: look-up, waiting for the bandwidth limit, reading.
    pub busy_micros: u64,
    /// Times that a thread had work but no memory headroom.
    pub memory_waits: u64,
    /// Whether [`pause`](super::Prefetcher::pause) was called last.
    pub paused: bool,
    /// The queues whose list is not finished.
    pub queues: Vec<QueueProgress>,
}

/// Progress of a queue's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueProgress {
    /// The namespace's directory.
    pub root: PathBuf,
    /// Number of the queue.
    pub queue: u32,
    /// Ranges that threads have claimed, out of [`ranges`](Self::ranges).
    pub claimed_ranges: usize,
    /// Ranges of the list.
    pub ranges: usize,
    /// File of the next range, relative to the root; empty when none is left.
    pub path: PathBuf,
    /// Offset of the next byte.
    pub offset: u64,
}

/// [`PrefetchProgress`], counted by many threads.
#[derive(Debug, Default)]
pub(super) struct PrefetchCounters {
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_skipped: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) submitted: AtomicU64,
    pub(super) interrupts: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) past_end: AtomicU64,
    pub(super) busy_micros: AtomicU64,
    pub(super) memory_waits: AtomicU64,
}

impl PrefetchCounters {
    /// Bytes that were read or found in the page cache.
    pub(super) fn processed(&self) -> u64 {
        let read = self.bytes_read.load(Relaxed);
        read.saturating_add(self.bytes_skipped.load(Relaxed))
    }

    pub(super) fn snapshot(&self, paused: bool, queues: Vec<QueueProgress>) -> PrefetchProgress {
        PrefetchProgress {
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_skipped: self.bytes_skipped.load(Relaxed),
            reads: self.reads.load(Relaxed),
            submitted: self.submitted.load(Relaxed),
            interrupts: self.interrupts.load(Relaxed),
            stale: self.stale.load(Relaxed),
            errors: self.errors.load(Relaxed),
            past_end: self.past_end.load(Relaxed),
            busy_micros: self.busy_micros.load(Relaxed),
            memory_waits: self.memory_waits.load(Relaxed),
            paused,
            queues,
        }
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    // relaxed: the numbers publish no other data
    counter.fetch_add(by, Relaxed);
}
