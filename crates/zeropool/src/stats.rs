//! What a pool did, and what it holds.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::sync::{AtomicU64, AtomicUsize};

/// A pool's figures, read one after the other: while other threads work they need not add up to the byte.
///
/// Bytes are capacities of buffers unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests met by a free buffer.
    pub hits: u64,
    /// Requests for which memory was mapped or carved.
    pub misses: u64,
    /// Requests that had to queue.
    pub waits: u64,
    /// Free buffers given up for the budget or for a class limit.
    pub evicted: u64,
    /// Bytes that the pool holds: in use and free. Never more than `budget`.
    pub resident: usize,
    /// Bytes that are handed out.
    pub in_use: usize,
    /// Bytes that wait to be used again.
    pub free: usize,
    /// The most that `resident` may be.
    pub budget: usize,
    /// Bytes of address space that are mapped for the pool. More than `resident`, as small buffers share slabs; what
    /// was never touched takes no memory.
    pub mapped: usize,
    /// Bytes of address space that are locked into memory.
    pub pinned: usize,
    /// An estimate of the page faults that hits saved: pages of 4 KiB that were asked for and had been touched before.
    pub faults_avoided: u64,
}

/// Counted by all threads, on the long ways.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) totals: Arc<Totals>,
}

/// Address space of the slabs that are there.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) mapped: AtomicUsize,
    pub(crate) pinned: AtomicUsize,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Self {
        let counters = &engine.counters;
        let (hits, pages) = engine.caches.counted();
        let free = engine.free();
        let resident = engine.ledger.held();
        Self {
            hits: hits + counters.hits.load(Relaxed),
            misses: counters.misses.load(Relaxed),
            waits: counters.waits.load(Relaxed),
            evicted: counters.evicted.load(Relaxed),
            resident,
            in_use: resident.saturating_sub(free),
            free,
            budget: engine.ledger.limit(),
            mapped: counters.totals.mapped.load(Relaxed),
            pinned: counters.totals.pinned.load(Relaxed),
            faults_avoided: pages + counters.pages.load(Relaxed),
        }
    }
}
