//! What a prefetcher has done, as plain numbers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// What a [`Prefetcher`](super::Prefetcher) has done since it was made, and is about to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Bytes that were read: not in memory when they were looked up, or brought a moment ago by the read-ahead that
    /// reading them keeps going.
    pub bytes_read: u64,
    /// Bytes that were in memory and not read.
    pub bytes_skipped: u64,
    /// Calls that read.
    pub reads: u64,
    /// Lists that were taken.
    pub submitted: u64,
    /// Lists that ended before their end, by a newer one or by an interrupt.
    pub interrupts: u64,
    /// Files that were not read since they are no longer those that were scanned, or never were.
    pub stale: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Ranges that lie past their file's end, wholly or in part.
    pub past_end: u64,
    /// Thread-microseconds spent on pieces: looking, waiting for the bandwidth bound, reading.
    pub busy_micros: u64,
    /// Times that a thread found work and no room for it in memory.
    pub no_room: u64,
    /// Whether [`pause`](super::Prefetcher::pause) was called last.
    pub paused: bool,
    /// The lists that are not done.
    pub lanes: Vec<LaneProgress>,
}

/// How far a lane's list is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaneProgress {
    /// The namespace's directory.
    pub root: PathBuf,
    /// The lane's number.
    pub lane: u32,
    /// Ranges that were taken, of [`of`](Self::of).
    pub taken: usize,
    /// Ranges of the list.
    pub of: usize,
    /// The file of the range that is next, relative to the root; empty when all were taken.
    pub path: PathBuf,
    /// The byte that is next.
    pub at: u64,
}

/// [`Progress`], counted by many threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_skipped: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) submitted: AtomicU64,
    pub(super) interrupts: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) past_end: AtomicU64,
    pub(super) busy_micros: AtomicU64,
    pub(super) no_room: AtomicU64,
}

impl Counters {
    pub(super) fn snapshot(&self, paused: bool, lanes: Vec<LaneProgress>) -> Progress {
        Progress {
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_skipped: self.bytes_skipped.load(Relaxed),
            reads: self.reads.load(Relaxed),
            submitted: self.submitted.load(Relaxed),
            interrupts: self.interrupts.load(Relaxed),
            stale: self.stale.load(Relaxed),
            errors: self.errors.load(Relaxed),
            past_end: self.past_end.load(Relaxed),
            busy_micros: self.busy_micros.load(Relaxed),
            no_room: self.no_room.load(Relaxed),
            paused,
            lanes,
        }
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
