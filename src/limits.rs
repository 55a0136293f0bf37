//! Bounds on the resources that a file may consume, and the budget that counts what is spent.

use std::cell::Cell;

use crate::error::{Error, ErrorKind, Result};

/// Bounds on what one checkpoint may make this library spend.
///
/// The default is safe for untrusted files and wide enough for every published model known to us.
/// Each allocation whose size a file decides is charged before it is made.
///
/// ```
/// use anamnesis::{Limits, OpenOptions};
///
/// let trusted = OpenOptions::new().limits(Limits::none());
/// let small = OpenOptions::new().limits(Limits { memory: 1 << 20, ..Limits::default() });
/// # let _ = (trusted, small);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that opening may allocate for names, shapes, metadata and unpacked headers,
    /// over all files of the checkpoint. Default 160 MiB.
    pub memory: u64,
    /// Number of tensors. Default 2 000 000.
    pub tensors: u64,
    /// Depth of nested containers: GGUF arrays, dotted names of a pickle. Default 64.
    pub depth: u64,
    /// Steps of the pickle machine, and of the walk over the tree it built. Default 20 000 000.
    pub steps: u64,
    /// Bytes that reading one tensor may allocate. Default 64 GiB. A view that repeats its storage
    /// (stride 0) or a deflated member can need far more than the file holds.
    pub tensor_bytes: u64,
    /// Bytes that [`remember`](crate::remember) may hold for one tile of a weight, once per thread: its output,
    /// its inputs, and stored tensors that cannot be read in pieces. Default 1 GiB.
    pub tile_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 160 << 20,
            tensors: 2_000_000,
            depth: 64,
            steps: 20_000_000,
            tensor_bytes: 64 << 30,
            tile_bytes: 1 << 30,
        }
    }
}

impl Limits {
    /// No limits, for files of your own. Malformed files are still rejected.
    pub const fn none() -> Self {
        Self {
            memory: u64::MAX,
            tensors: u64::MAX,
            depth: u64::MAX,
            steps: u64::MAX,
            tensor_bytes: u64::MAX,
            tile_bytes: u64::MAX,
        }
    }
}

/// The limits of one open call, and what has been spent of them.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    memory: Cell<u64>,
    tensors: Cell<u64>,
    steps: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: Cell::new(0),
            tensors: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    /// Charges `bytes` of memory. Called before an allocation whose size a file decides.
    #[inline]
    pub(crate) fn memory(&self, bytes: u64, what: &str) -> Result<()> {
        spend(&self.memory, bytes, self.limits.memory, what, "memory")
    }

    /// Charges `n` tensors and the memory that describing them takes.
    #[inline]
    pub(crate) fn tensors(&self, n: u64) -> Result<()> {
        spend(
            &self.tensors,
            n,
            self.limits.tensors,
            "the list of tensors",
            "tensors",
        )?;
        // a tensor without bytes still has a description
        let row = size_of::<crate::catalog::TensorInfo>() as u64;
        self.memory(n.saturating_mul(row), "the list of tensors")
    }

    /// Charges `n` steps of the pickle machine or of a walk over what it built.
    #[inline]
    pub(crate) fn steps(&self, n: u64, what: &str) -> Result<()> {
        spend(&self.steps, n, self.limits.steps, what, "steps")
    }

    /// Rejects nesting deeper than the limit.
    #[inline]
    pub(crate) fn depth(&self, depth: u64, what: &str) -> Result<()> {
        within(depth, self.limits.depth, what, "depth")
    }
}

#[inline]
fn spend(spent: &Cell<u64>, n: u64, allowed: u64, what: &str, limit: &'static str) -> Result<()> {
    let total = spent.get().saturating_add(n);
    // what was refused stays charged: a caller that goes on after an error cannot spend the same bytes again
    spent.set(total);
    within(total, allowed, what, limit)
}

#[inline]
fn within(needed: u64, allowed: u64, what: &str, limit: &'static str) -> Result<()> {
    if needed > allowed {
        return Err(over(needed, allowed, what, limit));
    }
    Ok(())
}

/// The error for something that needs more than the limit of this name allows.
#[cold]
pub(crate) fn over(
    needed: u64,
    allowed: u64,
    what: impl Into<String>,
    limit: &'static str,
) -> Error {
    Error::new(ErrorKind::Limit {
        what: what.into(),
        needed,
        allowed,
        limit,
    })
}

/// Allocates `len` zeroed bytes; `None` if the allocation fails.
///
/// `alloc_zeroed` leaves new pages untouched, since the system hands them out zeroed: a large buffer costs page faults only
/// where it is written.
pub(crate) fn zeroed(len: usize) -> Option<Vec<u8>> {
    // fallible: `vec![0; n]` aborts the process if the system has no memory, and the length comes from a file
    bytemuck::allocation::try_zeroed_vec(len).ok()
}
