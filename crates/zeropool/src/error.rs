//! Why there is no buffer, and why there is no pool.

use std::io;

use crate::region::Refusal;

/// Why a buffer could not be had. Sizes are bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The budget is spent, or others were there first. Buffers that are dropped make room.
    #[error(
        "no room for {len} bytes: the pool holds {held} of the {budget} bytes of its budget, or others wait"
    )]
    Spent {
        /// What was asked for.
        len: usize,
        /// What the pool holds.
        held: usize,
        /// What it may hold.
        budget: usize,
    },
    /// No waiting would help: with its size class's rounding, the request is larger than the whole budget.
    #[error(
        "{len} bytes, rounded up to their size class, are more than the pool's whole budget of {budget} bytes"
    )]
    TooLarge {
        /// What was asked for.
        len: usize,
        /// What the pool may hold.
        budget: usize,
    },
    /// The time is over, and it was not this request's turn.
    #[error("no room for {len} bytes came up in time")]
    TimedOut {
        /// What was asked for.
        len: usize,
    },
    /// The system gives no memory, also after the pool has given its free buffers back.
    #[error("the system has no memory for {len} bytes")]
    OutOfMemory {
        /// What was asked for.
        len: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// The memory cannot be locked, and [`Pinning::Require`](crate::Pinning::Require) was asked for. Often the limit
    /// on locked memory (`ulimit -l`).
    #[error("memory for {len} bytes cannot be locked (see `ulimit -l`)")]
    Pin {
        /// What was asked for.
        len: usize,
        /// The system's reason.
        source: io::Error,
    },
}

impl GetError {
    pub(crate) fn refused(len: usize, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Memory(source) => Self::OutOfMemory { len, source },
            Refusal::Pin(source) => Self::Pin { len, source },
        }
    }
}

/// Why a pool could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Shards are picked by the low bits of a thread's number.
    #[error("{0} shards: the number has to be a power of two, at most 1024")]
    Shards(usize),
    /// This machine has no such node, or its memory cannot be bound to.
    #[error("no NUMA node {node}; there are {known:?}")]
    NoSuchNode {
        /// The node that was asked for.
        node: u32,
        /// The nodes with memory.
        known: Vec<u32>,
    },
    /// There is no pressure to watch on this system.
    #[error("memory pressure cannot be watched")]
    Watch(#[source] io::Error),
}
