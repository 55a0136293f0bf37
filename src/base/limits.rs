//! Bounds on the resources that a file may consume, and the budget that counts what is spent.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::error::{Error, ErrorKind, Result};

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
    /// Bytes of memory that the description of the checkpoint may take, over all its files: names, shapes, metadata,
    /// unpacked headers, the configuration, and the plan and the listing that are made from them. Default 1 GiB.
    ///
    /// Up to the default, 160 MiB may be of anything; the rest is for tensors that a header of safetensors or GGUF
    /// describes, 32 bytes for each byte of their names and 1024 for each tensor. So a model of 280 000 tensors has room,
    /// and a small file that unpacks to many values has not. A higher limit than the default is for anything.
    pub memory: u64,
    /// Number of tensors. Default 2 000 000.
    pub tensors: u64,
    /// Depth of nested containers and calls: GGUF arrays, dotted names of a pickle, calls of a pickle that return their
    /// argument. Default 64.
    pub depth: u64,
    /// Steps of the pickle machine, of the walk over the tree it built, and of matching names with the patterns of a
    /// configuration. Default 20 000 000.
    pub steps: u64,
    /// Bytes that reading one tensor may allocate. Default 64 GiB. A view that repeats its storage
    /// (stride 0) or a deflated member can need far more than the file holds.
    pub tensor_bytes: u64,
    /// Bytes that [`remember`](crate::remember) may hold for one tile of a weight, once per thread: its output,
    /// its inputs, and stored tensors that cannot be read in pieces. Default 1 GiB.
    pub tile_bytes: u64,
    /// Times that the elements of a tensor may exceed its stored bytes, where they exceed 1 GiB: a view that repeats its
    /// storage costs time even where it costs no memory. Default 1032, the most that deflate reaches.
    pub expansion: u64,
}

/// The default of [`Limits::memory`]: all verbs on twice the tensors of the largest published model (`docs/untrusted.md`).
const DEFAULT_MEMORY: u64 = 1 << 30;

/// Memory that needs no tensors: for headers that unpack, configurations, indexes. An input of a few kilobytes can fill it,
/// so it bounds the time and the memory that such an input costs.
const WITHOUT_TENSORS: u64 = 160 << 20;

/// Memory for each byte of the name of a tensor in a plain header, and bytes that an entry counts besides its name.
///
/// A plan with its listing takes about 1.2 KiB for a tensor with a name of 60 bytes, a check of its values with statistics
/// 2.1 KiB, a comparison of two models 2.4 KiB, a check against a list of digests of tensors 2.6 KiB.
/// An entry without a name has at least 25 bytes in a header, so that the file grows along with what it may use.
const MEMORY_PER_NAME_BYTE: u64 = 32;
/// Memory for an entry of a list of digests, which has 64 digits in the list.
const MEMORY_PER_DIGEST: u64 = 128;
const BYTES_PER_ENTRY: u64 = 32;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: DEFAULT_MEMORY,
            tensors: 2_000_000,
            depth: 64,
            steps: 20_000_000,
            tensor_bytes: 64 << 30,
            tile_bytes: 1 << 30,
            expansion: 1032,
        }
    }
}

impl Limits {
    /// Memory that the file may use before it has described a tensor.
    pub(crate) fn memory_without_tensors(&self) -> u64 {
        // a caller who raised the limit trusts the file
        if self.memory > DEFAULT_MEMORY {
            self.memory
        } else {
            self.memory.min(WITHOUT_TENSORS)
        }
    }

    /// No limits, for files of your own. Malformed files are still rejected.
    pub const fn none() -> Self {
        Self {
            memory: u64::MAX,
            tensors: u64::MAX,
            depth: u64::MAX,
            steps: u64::MAX,
            tensor_bytes: u64::MAX,
            tile_bytes: u64::MAX,
            expansion: u64::MAX,
        }
    }
}

/// The amounts that opening, planning and listing have charged to [`Limits`], counted over all calls that share it.
///
/// ```
/// use anamnesis::{OpenOptions, Usage};
///
/// let usage = Usage::new();
/// let checkpoint = OpenOptions::new().usage(&usage).open("fixtures/gguf/plain_v3.gguf")?;
/// assert_eq!(usage.tensors(), 8);
/// assert!(usage.memory() > 0 && checkpoint.catalog().tensors().len() == 8);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<UsageCounters>);

#[derive(Debug, Default)]
struct UsageCounters {
    memory: AtomicU64,
    tensors: AtomicU64,
    steps: AtomicU64,
}

impl Usage {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most bytes of memory that were charged at once. A charge that was refused does not count: nothing was allocated.
    pub fn memory(&self) -> u64 {
        self.0.memory.load(Relaxed)
    }

    /// Tensors charged, over all calls.
    pub fn tensors(&self) -> u64 {
        self.0.tensors.load(Relaxed)
    }

    /// Steps charged, over all calls.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Relaxed)
    }
}

/// The limits of one call, and what has been spent of them.
///
/// Memory is charged before it is allocated, by the capacity that is allocated and not by the bytes that are used. It is
/// released only where the work that it stands for is linear in bytes that the file has: a header's text, a window.
/// Inflated or expanded bytes stay charged, so that the limit on memory bounds the work too.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Bytes charged and not released.
    memory: Cell<u64>,
    peak: Cell<u64>,
    /// Bytes that may be charged: they grow with the tensors of plain headers, up to the limit.
    allowed: Cell<u64>,
    tensors: Cell<u64>,
    steps: Cell<u64>,
    usage: Option<Usage>,
}

/// Memory that a checkpoint keeps, and that its tensors allow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptMemory {
    /// Bytes charged and not released.
    pub(crate) in_use: u64,
    /// Bytes that its tensors allow besides what every file may use.
    for_tensors: u64,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::resume(limits, KeptMemory::default(), None)
    }

    /// A budget of which `kept` is in use, by what an earlier call has made. Reports to `usage` when it is dropped.
    pub(crate) fn resume(limits: Limits, kept: KeptMemory, usage: Option<Usage>) -> Self {
        let allowed = limits
            .memory_without_tensors()
            .saturating_add(kept.for_tensors);
        Self {
            limits,
            memory: Cell::new(kept.in_use),
            peak: Cell::new(kept.in_use),
            allowed: Cell::new(allowed.min(limits.memory)),
            tensors: Cell::new(0),
            steps: Cell::new(0),
            usage,
        }
    }

    /// Bytes charged and not released.
    pub(crate) fn in_use(&self) -> u64 {
        self.memory.get()
    }

    /// The memory that a checkpoint keeps which was made within this budget.
    pub(crate) fn kept(&self) -> KeptMemory {
        KeptMemory {
            in_use: self.in_use(),
            for_tensors: self.allowed.get() - self.limits.memory_without_tensors(),
        }
    }

    /// Charges the memory of another checkpoint that is open at the same time, and allows what its tensors allow.
    pub(crate) fn keep_too(&self, other: KeptMemory, what: &str) -> Result<()> {
        self.allow(other.for_tensors);
        self.memory(other.in_use, what)
    }

    #[inline]
    fn allow(&self, more: u64) {
        let allowed = self.allowed.get().saturating_add(more);
        self.allowed.set(allowed.min(self.limits.memory));
    }

    /// Charges `bytes` of memory. Called before an allocation whose size a file decides.
    #[inline]
    pub(crate) fn memory(&self, bytes: u64, what: &str) -> Result<()> {
        let total = self.memory.get().saturating_add(bytes);
        // before the sum is kept: a refused charge allocates nothing, and must not make later ones fail
        within(total, self.allowed.get(), what, "memory")?;
        self.memory.set(total);
        self.peak.set(self.peak.get().max(total));
        Ok(())
    }

    /// Releases memory that was charged and is freed.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        self.memory.set(self.memory.get().saturating_sub(bytes));
    }

    /// Charges memory that is freed when the returned value is dropped.
    #[inline]
    pub(crate) fn temporary(&self, bytes: u64, what: &str) -> Result<TemporaryCharge<'_>> {
        let mut held = self.nothing();
        held.grow(bytes, what)?;
        Ok(held)
    }

    /// Releases what is charged while the returned value lives, when it is dropped.
    #[inline]
    pub(crate) fn scope(&self) -> ChargeScope<'_> {
        ChargeScope {
            budget: self,
            in_use: self.in_use(),
        }
    }

    /// A temporary charge of no bytes, to be grown.
    #[inline]
    pub(crate) fn nothing(&self) -> TemporaryCharge<'_> {
        TemporaryCharge {
            budget: self,
            bytes: 0,
        }
    }

    /// Makes room for `n` more items and charges it. Grows by a half, so that the charge is at most 1.5 times what is needed.
    #[inline]
    pub(crate) fn reserve<T>(&self, list: &mut Vec<T>, n: usize, what: &str) -> Result<()> {
        if list.capacity() - list.len() < n {
            self.grow(list, n, what)?;
        }
        Ok(())
    }

    #[cold]
    fn grow<T>(&self, list: &mut Vec<T>, n: usize, what: &str) -> Result<()> {
        // the first items of a list would otherwise make it grow once each
        const LEAST: usize = 4;
        let more = n.max(list.capacity() / 2).max(LEAST);
        // the capacity that the list has is charged already
        let room = more.saturating_sub(list.capacity() - list.len());
        self.memory((room as u64).saturating_mul(size_of::<T>() as u64), what)?;
        list.reserve_exact(more);
        Ok(())
    }

    /// Appends an item and charges the memory by which the list grows.
    #[inline]
    pub(crate) fn push<T>(&self, list: &mut Vec<T>, item: T, what: &str) -> Result<()> {
        self.reserve(list, 1, what)?;
        list.push(item);
        Ok(())
    }

    /// Charges the copy of a text of this length: its bytes, and what the allocator adds to each allocation.
    #[inline]
    pub(crate) fn text(&self, len: usize, what: &str) -> Result<()> {
        self.memory(text_cost(len), what)
    }

    /// Charges `n` tensors. The memory of their descriptions is charged where they are stored.
    #[inline]
    pub(crate) fn tensors(&self, n: u64) -> Result<()> {
        let total = self.tensors.get().saturating_add(n);
        // kept even if it is refused, since opening ends there in any case
        self.tensors.set(total);
        within(total, self.limits.tensors, "the list of tensors", "tensors")
    }

    /// Charges a tensor that a plain header describes, of a name of this length, and allows the memory that lists of it take.
    #[inline]
    pub(crate) fn described_tensor(&self, name: usize) -> Result<()> {
        self.allow(MEMORY_PER_NAME_BYTE * (BYTES_PER_ENTRY + name as u64));
        self.tensors(1)
    }

    /// Allows the memory that an entry with a digest takes in lists of them.
    #[inline]
    pub(crate) fn listed_digest(&self) {
        self.allow(MEMORY_PER_DIGEST);
    }

    /// Charges `n` steps: of the pickle machine, of a walk over what it built, of matching names with patterns.
    #[inline]
    pub(crate) fn steps(&self, n: u64, what: &str) -> Result<()> {
        let total = self.steps.get().saturating_add(n);
        within(total, self.limits.steps, what, "steps")?;
        self.steps.set(total);
        Ok(())
    }

    /// Rejects nesting deeper than the limit.
    #[inline]
    pub(crate) fn depth(&self, depth: u64, what: &str) -> Result<()> {
        within(depth, self.limits.depth, what, "depth")
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(Usage(counters)) = &self.usage {
            // the peak of one call: calls follow each other, and their memory does not add up
            counters.memory.fetch_max(self.peak.get(), Relaxed);
            counters.tensors.fetch_add(self.tensors.get(), Relaxed);
            counters.steps.fetch_add(self.steps.get(), Relaxed);
        }
    }
}

/// A charge that ends with this value.
#[derive(Debug)]
pub(crate) struct TemporaryCharge<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl TemporaryCharge<'_> {
    /// Charges more.
    #[inline]
    pub(crate) fn grow(&mut self, bytes: u64, what: &str) -> Result<()> {
        self.budget.memory(bytes, what)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Charges this much in all.
    #[inline]
    pub(crate) fn set(&mut self, bytes: u64, what: &str) -> Result<()> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            return self.grow(more, what);
        }
        self.budget.release(self.bytes - bytes);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for TemporaryCharge<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// A part of a call, of which nothing is kept.
#[derive(Debug)]
pub(crate) struct ChargeScope<'b> {
    budget: &'b Budget,
    in_use: u64,
}

impl Drop for ChargeScope<'_> {
    fn drop(&mut self) {
        // set back as a whole, whatever was charged and released in between
        self.budget.memory.set(self.in_use);
    }
}

/// Memory of one allocated text, with what the allocator adds.
#[inline]
pub(crate) const fn text_cost(len: usize) -> u64 {
    // the allocator's own words, and what it rounds up to
    len as u64 + 16
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
    zeroed_numbers(len)
}

/// Like [`zeroed`], for numbers.
pub(crate) fn zeroed_numbers<T: bytemuck::Zeroable>(len: usize) -> Option<Vec<T>> {
    // fallible: `vec![0; n]` aborts the process if the system has no memory, and the length comes from a file
    bytemuck::allocation::try_zeroed_vec(len).ok()
}
