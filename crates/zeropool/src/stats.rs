//! Statistics of a pool, and the counters behind them.

use std::sync::Arc;

use crate::sync::{AtomicU64, AtomicUsize};

/// A pool's counters and sizes. They are read one after the other, so while other threads work the sums may be off.
///
/// Sizes are bytes, and capacities of buffers unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests met by a free buffer.
    pub hits: u64,
    /// Requests for which memory was mapped or taken from a slab for the first time.
    pub misses: u64,
    /// Requests that had to queue.
    pub waits: u64,
    /// Free buffers released because of the budget or a class limit.
    pub evicted: u64,
    /// Bytes that the pool holds, in use and free. Never more than `budget`.
    pub resident: usize,
    /// Bytes of buffers that are in use.
    pub in_use: usize,
    /// Bytes of free buffers.
    pub free: usize,
    /// The maximum of `resident`.
    pub budget: usize,
    /// Bytes of address space mapped for the pool. More than `resident`, as small buffers share slabs; pages that were
    /// never touched take no memory.
    pub mapped: usize,
    /// Bytes of address space that are locked into memory.
    pub pinned: usize,
    /// An estimate of the page faults that hits avoided: requested pages of 4 KiB that had been touched before.
    pub faults_avoided: u64,
}

/// Counted outside the thread-local magazines, which have counters of their own so that hits share no cache line.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) slab_bytes: Arc<SlabBytes>,
}

/// Address space of the slabs that exist. A slab may outlive its pool's last handle, so each holds a reference.
#[derive(Debug, Default)]
pub(crate) struct SlabBytes {
    pub(crate) mapped: AtomicUsize,
    pub(crate) pinned: AtomicUsize,
}
