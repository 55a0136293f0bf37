//! Thread caches: a few cells per class and thread, which their owner uses without a lock, and which any other thread
//! may empty. So nothing is lost to a thread that only frees, that sleeps, or that has ended.

use std::cell::RefCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::sync::{Arc, Weak};

use crate::alert::Alert;
use crate::class::{Class, PAGE};
use crate::engine::Engine;
use crate::slab::Block;
use crate::slot::Slot;
use crate::stack::Stacks;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, thread_local};

/// Cells per class and thread: one cache line.
pub(crate) const CELLS: usize = 8;

#[repr(align(64))]
struct Line([Slot; CELLS]);

/// One thread's cells for one pool, and what it counted.
pub(crate) struct Cache {
    lines: Box<[Line]>,
    cells: usize,
    fence: bool,
    alert: Arc<Alert>,
    /// Which shard this thread prefers.
    pub(crate) thread: usize,
    /// A living thread has it.
    owned: AtomicBool,
    /// Counted by the owner alone, so without locked instructions.
    hits: AtomicU64,
    pages: AtomicU64,
}

impl Cache {
    /// The owner counts a block that it got for `len` bytes.
    #[inline]
    pub(crate) fn count_hit(&self, block: &Block, len: usize) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
        let pages = len.min(block.dirty()).div_ceil(PAGE) as u64;
        self.pages.store(self.pages.load(Relaxed) + pages, Relaxed);
    }

    #[inline]
    pub(crate) fn take(&self, class: Class) -> Option<Block> {
        self.lines[class.index()].0[..self.cells].iter().find_map(Slot::take)
    }

    #[inline]
    fn put(&self, mut block: Block) -> Result<(), Block> {
        for cell in &self.lines[block.class().index()].0[..self.cells] {
            match cell.put(block, self.fence) {
                Ok(()) => {
                    // who waits rings the alert, then (behind a barrier) looks into the cells; the owner puts, then
                    // (behind this) looks at the alert: one of the two sees the other
                    compiler_fence(SeqCst);
                    return Ok(());
                }
                Err(back) => block = back,
            }
        }
        Err(block)
    }
}

/// What became of a block that was put the short way.
pub(crate) enum Put {
    Kept,
    /// Kept, but somebody waits, or the pool is closed.
    Alerted(Weak<Engine>),
    /// The thread does not know this pool yet, or is ending.
    Unknown(Block),
}

/// All caches of a pool.
pub(crate) struct Caches {
    all: Mutex<Vec<Arc<Cache>>>,
    next_thread: AtomicUsize,
    cells: usize,
    /// Whether cells are put to with a fence of their own.
    pub(crate) fence: bool,
}

impl Caches {
    pub(crate) fn new(cells: usize, fence: bool) -> Self {
        Self { all: Mutex::new(Vec::new()), next_thread: AtomicUsize::new(0), cells, fence }
    }

    /// A cache whose thread has ended, with what is in it, or a new one.
    fn adopt(&self, alert: &Arc<Alert>) -> Arc<Cache> {
        let mut all = self.all.lock();
        let free = |cache: &&Arc<Cache>| cache.owned.compare_exchange(false, true, AcqRel, Acquire).is_ok();
        if let Some(cache) = all.iter().find(free) {
            return Arc::clone(cache);
        }
        let line = || Line(std::array::from_fn(|_| Slot::new()));
        let cache = Arc::new(Cache {
            lines: Class::all().map(|_| line()).collect(),
            cells: self.cells,
            fence: self.fence,
            alert: Arc::clone(alert),
            thread: self.next_thread.fetch_add(1, Relaxed),
            owned: AtomicBool::new(true),
            hits: AtomicU64::new(0),
            pages: AtomicU64::new(0),
        });
        all.push(Arc::clone(&cache));
        cache
    }

    /// A block of this class out of any thread's cells.
    pub(crate) fn steal(&self, class: Class) -> Option<Block> {
        self.all.lock().iter().find_map(|cache| cache.take(class))
    }

    /// How many blocks of this class lie in cells.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        let full = |cache: &Arc<Cache>| cache.lines[class.index()].0.iter().filter(|cell| cell.is_full()).count();
        self.all.lock().iter().map(full).sum()
    }

    /// Hits, and pages that they had in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let all = self.all.lock();
        let sum = |of: fn(&Cache) -> &AtomicU64| all.iter().map(|cache| of(cache).load(Relaxed)).sum();
        (sum(|cache| &cache.hits), sum(|cache| &cache.pages))
    }
}

thread_local! {
    /// The caches of this thread, by pool. Numbers of pools are never used again.
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
}

struct Mine {
    pool: u64,
    cache: Arc<Cache>,
    /// What does not fit into the cache goes here, without counting references to the engine.
    stacks: Arc<Stacks>,
    engine: Weak<Engine>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.cache.owned.store(false, Release);
    }
}

/// Runs `with` on this thread's cache for the pool, if it has one.
#[inline]
fn mine<R>(pool: u64, with: impl FnOnce(&Mine) -> R) -> Option<R> {
    MINE.try_with(|mine| mine.borrow().iter().find(|mine| mine.pool == pool).map(with)).ok().flatten()
}

/// The same for a request; the first one gets the thread its cache. `None` while the thread ends.
#[inline]
pub(crate) fn with_mine<R>(engine: &Arc<Engine>, with: impl Fn(&Cache) -> R) -> Option<R> {
    mine(engine.id, |mine| with(&mine.cache)).or_else(|| {
        register(engine);
        mine(engine.id, |mine| with(&mine.cache))
    })
}

/// Gives this thread a cache for the pool.
#[cold]
pub(crate) fn register(engine: &Arc<Engine>) {
    // `Err`: the thread is ending, and can do without
    let _ = MINE.try_with(|mine| {
        let cache = engine.caches.adopt(&engine.alert);
        let mut mine = mine.borrow_mut();
        // caches of pools that are gone
        mine.retain(|mine| !mine.cache.alert.is_closed());
        let stacks = Arc::clone(&engine.stacks);
        mine.push(Mine { pool: engine.id, cache, stacks, engine: Arc::downgrade(engine) });
    });
}

/// Puts a block into this thread's cache for the pool, if the thread is to keep blocks of its class, or else onto a
/// stack.
#[inline]
pub(crate) fn put(pool: u64, block: Block, keep: bool) -> Put {
    let mut block = Some(block);
    let put = mine(pool, |mine| {
        let block = block.take()?;
        let left = if keep { mine.cache.put(block).err() } else { Some(block) };
        if let Some(block) = left {
            mine.stacks.push(mine.cache.thread, block);
        }
        Some(if mine.cache.alert.is_quiet() { Put::Kept } else { Put::Alerted(mine.engine.clone()) })
    });
    match (put.flatten(), block) {
        (None, Some(block)) => Put::Unknown(block),
        (put, _) => put.unwrap_or(Put::Kept),
    }
}
