//! The pool's handle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::builder::{Builder, Settings};
use crate::engine::Engine;
use crate::error::{BuildError, GetError};
use crate::future::Get;
use crate::near;
use crate::pressure::{self, Relief, Watch};
use crate::slab::Block;
use crate::stats::Stats;

/// Numbers of pools; none is used twice.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Buffers to be used again and again.
///
/// A handle, cheap to clone and to send. When the last one is gone, free memory goes back to the system; buffers that
/// are still in use follow when they are dropped.
///
/// ```
/// use zeropool::BufferPool;
///
/// let pool = BufferPool::new();
/// let mut buffer = pool.get(1 << 20);
/// buffer[..5].copy_from_slice(b"bytes");
/// let address = buffer.as_ptr();
/// drop(buffer);
/// // the same memory, with no page to fault in again
/// assert_eq!(pool.get(1 << 20).as_ptr(), address);
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<Handle>);

struct Handle {
    /// The engine's, one step nearer.
    id: u64,
    engine: Arc<Engine>,
    _watch: Option<Watch>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.close();
    }
}

impl BufferPool {
    /// A pool with this machine's defaults; see [`Builder`].
    #[must_use]
    pub fn new() -> Self {
        Self::builder()
            .build()
            .expect("the defaults fit every machine")
    }

    /// A pool with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn with(
        settings: Settings,
        watch: Option<(f32, Duration)>,
    ) -> Result<Self, BuildError> {
        let id = NEXT.fetch_add(1, Relaxed);
        let engine = Engine::new(id, settings);
        let weak = Arc::downgrade(&engine);
        let watch = watch.map(|(threshold, interval)| Watch::start(weak, threshold, interval));
        let watch = watch.transpose().map_err(BuildError::Watch)?;
        Ok(Self(Arc::new(Handle {
            id,
            engine,
            _watch: watch,
        })))
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// A buffer of `len` bytes of unspecified content. Waits for its turn while the budget is spent.
    ///
    /// # Panics
    ///
    /// As a `Vec` does for capacities that cannot be: if `len`, rounded up to its size class, is more than the budget,
    /// and if the system has no memory, or does not lock it where that was required. The other ways of getting a
    /// buffer return these as errors.
    #[inline]
    #[must_use]
    pub fn get(&self, len: usize) -> Buffer {
        Buffer::new(self.must(len), len)
    }

    /// A buffer of `len` zeros. What is known to be zero is not written again.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[must_use]
    pub fn get_zeroed(&self, len: usize) -> Buffer {
        Buffer::zeroed(self.must(len), len)
    }

    #[inline]
    fn must(&self, len: usize) -> Block {
        match near::get(self.0.id, len) {
            Some(block) => block,
            None => self.must_far(len),
        }
    }

    #[inline(never)]
    fn must_far(&self, len: usize) -> Block {
        match self.block(len, None) {
            Ok(block) => block,
            Err(error) => refuse(&error),
        }
    }

    fn block(&self, len: usize, timeout: Option<Duration>) -> Result<Block, GetError> {
        let engine = self.engine();
        let class = engine.class(len)?;
        match engine.hit(class, len) {
            Some(block) => Ok(block),
            None => engine.get(class, len, timeout),
        }
    }

    /// A buffer of `len` bytes of unspecified content, if there is one without waiting.
    ///
    /// # Errors
    ///
    /// [`GetError`] says why there is none. A buffer that another thread is just returning may be missed.
    pub fn try_get(&self, len: usize) -> Result<Buffer, GetError> {
        let engine = self.engine();
        let class = engine.class(len)?;
        let block = match engine.hit(class, len) {
            Some(block) => block,
            None => engine.try_get(class, len)?,
        };
        Ok(Buffer::new(block, len))
    }

    /// A buffer of `len` bytes of unspecified content, if its turn comes within `timeout`.
    ///
    /// # Errors
    ///
    /// [`GetError`] says why there is none.
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<Buffer, GetError> {
        Ok(Buffer::new(self.block(len, Some(timeout))?, len))
    }

    /// A buffer of `len` bytes of unspecified content when its turn comes, on any runtime. Futures and threads wait in
    /// one queue, first in, first out. The future owns a handle of the pool.
    ///
    /// It resolves to a [`GetError`] where [`get`](Self::get) would panic.
    ///
    /// Mapping new memory happens on the polling thread; it is a few system calls.
    pub fn get_async(&self, len: usize) -> Get {
        Get::new(self.clone(), len)
    }

    /// Gives all free buffers back to the system. Returns how many bytes of capacity they had.
    pub fn trim(&self) -> usize {
        self.trim_to(0)
    }

    /// Gives free buffers back to the system until at most `keep` bytes of them are left, those first that the
    /// [`EvictionPolicy`](crate::EvictionPolicy) picks. Returns how many bytes of capacity went.
    pub fn trim_to(&self, keep: usize) -> usize {
        self.engine().trim_to(keep)
    }

    /// Trims if memory pressure, as the share of the last ten seconds in which some task of this control group (or of
    /// this machine) waited for memory, is at least `threshold` per cent.
    ///
    /// # Errors
    ///
    /// If the system does not say (no PSI).
    pub fn trim_under_pressure(&self, threshold: f32) -> std::io::Result<Relief> {
        pressure::relieve(self.engine(), threshold)
    }

    /// The node that memory is taken from: `None` if none was asked for, and on a machine that has one only.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        self.engine().settings.node
    }

    /// Bytes that the pool may hold, in use and free.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.engine().ledger.limit()
    }

    /// What the pool did, and what it holds. Looks at every class; not for inner loops.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(self.engine())
    }
}

impl Default for BufferPool {
    fn default() -> Self {
        Self::new()
    }
}

// by hand, and nothing below it has one: blocks hold their pool, and a derived one would go round and round
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
fn refuse(error: &GetError) -> ! {
    let why = std::error::Error::source(error)
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    panic!("{error}{why}")
}
