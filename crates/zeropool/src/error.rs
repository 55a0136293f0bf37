//! Errors of requests and of building a pool.

use std::io;

use crate::region::RegionError;

/// Why a request for a buffer failed. Sizes are bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The budget has no room, or earlier requests are waiting. A later request may succeed, when buffers were dropped.
    #[error(
        "no room for a buffer of {len} bytes: the pool holds {held} of {budget} bytes, or earlier requests are waiting"
    )]
    BudgetExhausted {
        /// The requested length.
        len: usize,
        /// Bytes that the pool holds, in use and free.
        held: usize,
        /// The pool's budget.
        budget: usize,
    },
    /// The request can never be met: its size class has a larger capacity than the whole budget.
    #[error(
        "a buffer of {len} bytes, rounded up to its size class, exceeds the pool's whole budget of {budget} bytes"
    )]
    TooLarge {
        /// The requested length.
        len: usize,
        /// The pool's budget.
        budget: usize,
    },
    /// The timeout expired while the request was queued.
    #[error("timed out waiting for a buffer of {len} bytes")]
    TimedOut {
        /// The requested length.
        len: usize,
    },
    /// The system has no memory, even after the pool released its free buffers.
    #[error("the system has no memory for a buffer of {len} bytes")]
    OutOfMemory {
        /// The requested length.
        len: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The memory cannot be locked, which [`Pinning::Require`](crate::Pinning::Require) demands. A frequent reason is
    /// the limit on locked memory (`ulimit -l`).
    #[error("memory for a buffer of {len} bytes cannot be locked (see `ulimit -l`)")]
    Pin {
        /// The requested length.
        len: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The callback of [`PoolBuilder::on_slab`](crate::PoolBuilder::on_slab) has failed, also after the pool released its
    /// free buffers.
    #[error("memory for a buffer of {len} bytes cannot be registered")]
    Register {
        /// The requested length.
        len: usize,
        /// The callback's error.
        source: io::Error,
    },
}

impl GetError {
    pub(crate) fn from_region(len: usize, error: RegionError) -> Self {
        match error {
            RegionError::Memory(source) => Self::OutOfMemory { len, source },
            RegionError::Pin(source) => Self::Pin { len, source },
            RegionError::Register(source) => Self::Register { len, source },
        }
    }
}

/// Why a pool could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Not a power of two up to 1024. A thread's shard is given by the low bits of its number.
    #[error("invalid number of shards {0}: it must be a power of two, at most 1024")]
    Shards(usize),
    /// This machine has no such NUMA node, or the node has no memory.
    #[error("no NUMA node {node} with memory; the nodes with memory are {known:?}")]
    NoSuchNode {
        /// The requested node.
        node: u32,
        /// The nodes with memory.
        known: Vec<u32>,
    },
    /// The system does not report memory pressure, or the watching thread could not be started.
    #[error("memory pressure cannot be watched")]
    Watch(#[source] io::Error),
}
