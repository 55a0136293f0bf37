//! The handle of a pool.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::error::{BuildError, GetError};
use crate::magazine::tls;
use crate::pressure::{self, PressureTrim, PressureWatch};
use crate::settings::Settings;
use crate::slab::Object;
use crate::stats::Stats;

/// The number of the next pool. Numbers are never reused, so that a thread's table of magazines never finds another
/// pool's.
static NEXT_POOL: AtomicU64 = AtomicU64::new(0);

/// A pool of reusable byte buffers.
///
/// This is a handle, cheap to clone and to send. When the last handle is dropped, free memory is released to the system;
/// buffers in use are released when they are dropped.
///
/// ```
/// use zeropool::BufferPool;
///
/// let pool = BufferPool::new();
/// let mut buffer = pool.get(1 << 20);
/// buffer[..5].copy_from_slice(b"bytes");
/// let address = buffer.as_ptr();
/// drop(buffer);
/// // the same memory, without another page fault
/// assert_eq!(pool.get(1 << 20).as_ptr(), address);
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<PoolHandle>);

struct PoolHandle {
    /// The pool's number, a copy of the engine's: the fast path of `get` then follows one pointer less.
    id: u64,
    engine: Arc<Engine>,
    _watch: Option<PressureWatch>,
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl BufferPool {
    /// A pool with this machine's defaults; see [`BufferPool::builder`](Self::builder).
    #[must_use]
    pub fn new() -> Self {
        Self::builder()
            .build()
            .expect("the default settings are valid on every machine")
    }

    pub(crate) fn with_settings(
        settings: Settings,
        watch: Option<(f32, Duration)>,
    ) -> Result<Self, BuildError> {
        // numbers need only differ
        let id = NEXT_POOL.fetch_add(1, Relaxed);
        let engine = Engine::new(id, settings);
        // weak, since the watch must not keep the engine after the last handle
        let weak = Arc::downgrade(&engine);
        let watch =
            watch.map(|(threshold, interval)| PressureWatch::start(weak, threshold, interval));
        let watch = watch.transpose().map_err(BuildError::Watch)?;
        Ok(Self(Arc::new(PoolHandle {
            id,
            engine,
            _watch: watch,
        })))
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Gets a buffer of `len` bytes of unspecified content. Blocks while the budget is exhausted; requests are served in
    /// their order.
    ///
    /// # Panics
    ///
    /// If `len`, rounded up to its size class, exceeds the budget; if the system has no memory; and if memory cannot be
    /// locked under [`Pinning::Require`](crate::Pinning::Require). The other methods return these as errors.
    #[inline]
    #[must_use]
    pub fn get(&self, len: usize) -> Buffer {
        Buffer::new(self.get_or_panic(len), len)
    }

    /// Gets a buffer of `len` zero bytes. Blocks as [`get`](Self::get) does. Bytes that are known to be zero are not
    /// written again.
    ///
    /// # Panics
    ///
    /// The panics of [`get`](Self::get).
    #[must_use]
    pub fn get_zeroed(&self, len: usize) -> Buffer {
        Buffer::zeroed(self.get_or_panic(len), len)
    }

    #[inline]
    fn get_or_panic(&self, len: usize) -> Object {
        match tls::get(self.0.id, len) {
            Some(object) => object,
            None => self.get_slow(len),
        }
    }

    // out of line: with the slow path inlined, the fast one saves and restores registers for it (experiment 14)
    #[inline(never)]
    fn get_slow(&self, len: usize) -> Object {
        match self.get_object(len, None) {
            Ok(object) => object,
            Err(error) => panic_with(&error),
        }
    }

    fn get_object(&self, len: usize, timeout: Option<Duration>) -> Result<Object, GetError> {
        let engine = self.engine();
        let class = engine.class(len)?;
        match engine.hit(class, len) {
            Some(object) => Ok(object),
            None => engine.get(class, len, timeout),
        }
    }

    /// Gets a buffer of `len` bytes of unspecified content without waiting.
    ///
    /// # Errors
    ///
    /// [`GetError::BudgetExhausted`] if the request would have to wait, and the errors of [`GetError`] that no waiting
    /// changes. A buffer that another thread is returning at the same moment may not be found.
    pub fn try_get(&self, len: usize) -> Result<Buffer, GetError> {
        let engine = self.engine();
        let class = engine.class(len)?;
        let object = match engine.hit(class, len) {
            Some(object) => object,
            None => engine.try_get(class, len)?,
        };
        Ok(Buffer::new(object, len))
    }

    /// Gets a buffer of `len` bytes of unspecified content, and waits for it at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`GetError::TimedOut`] after the timeout, and the errors of [`GetError`] that no waiting changes.
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<Buffer, GetError> {
        Ok(Buffer::new(self.get_object(len, Some(timeout))?, len))
    }

    /// Releases all free buffers to the system. Returns the sum of their capacities in bytes.
    pub fn trim(&self) -> usize {
        self.trim_to(0)
    }

    /// Releases free buffers to the system until at most `keep` bytes of them are left, in the order of the
    /// [`EvictionPolicy`](crate::EvictionPolicy). Returns the sum of the released capacities in bytes.
    pub fn trim_to(&self, keep: usize) -> usize {
        self.engine().trim_to(keep)
    }

    /// Trims the pool if the memory pressure is at least `threshold` per cent. The pressure is the share of the last ten
    /// seconds in which some task of this control group (or of this machine) waited for memory, as Linux reports it in
    /// `memory.pressure` (pressure stall information, `some avg10`).
    ///
    /// # Errors
    ///
    /// If the system does not report memory pressure.
    pub fn trim_under_pressure(&self, threshold: f32) -> std::io::Result<PressureTrim> {
        pressure::trim_under_pressure(self.engine(), threshold)
    }

    /// The NUMA node that memory is preferably taken from. `None` if the builder named none, and on a machine with one
    /// node.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        self.engine().settings.node
    }

    /// The maximum number of bytes that the pool holds, in use and free.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.engine().ledger.limit()
    }

    /// Counters and sizes of the pool. Locks and reads every size class, so not for inner loops.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

impl Default for BufferPool {
    fn default() -> Self {
        Self::new()
    }
}

// not derived: objects hold their pool, so a derived implementation would not terminate
impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = &self.engine().ledger;
        let mut pool = f.debug_struct("BufferPool");
        pool.field("budget", &ledger.limit())
            .field("resident", &ledger.held())
            .finish_non_exhaustive()
    }
}

#[cold]
fn panic_with(error: &GetError) -> ! {
    let source = std::error::Error::source(error)
        .map(|source| format!(": {source}"))
        .unwrap_or_default();
    panic!("{error}{source}")
}
