//! What one thread keeps for one pool: a few cells per class, which it uses without a lock and which any other thread may
//! empty; and the thread's short way to them.
//!
//! What this file guarantees: a pointer in [`NEAR`] is to the [`Cells`] of a living [`Owner`] of this thread.
//! [`Owner::come_near`] alone writes one, for an owner, which holds its cells and cannot leave its thread, and the
//! owner's drop takes it out before it lets go of the cells.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

use crate::alert::Alert;
use crate::class::{Class, PAGE};
use crate::evict::Touches;
use crate::slab::Block;
use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicU64, thread_local};

/// Cells per class and thread: one cache line.
pub(crate) const CELLS: usize = 8;

#[repr(align(64))]
struct Line([Slot; CELLS]);

/// One thread's cells for one pool, and what it counted. On cache lines of its own.
#[repr(align(128))]
pub(crate) struct Cells {
    /// Counted by the owner alone, so without locked instructions.
    hits: AtomicU64,
    pages: AtomicU64,
    /// One for each class that fits into the budget.
    lines: Box<[Line]>,
    /// How many cells of a line are used.
    used: usize,
    fence: bool,
    alert: Arc<Alert>,
    touches: Option<Touches>,
    /// A living thread has it.
    owned: AtomicBool,
}

impl Cells {
    pub(crate) fn new(classes: usize, used: usize, fence: bool, alert: &Arc<Alert>, touches: Option<Touches>) -> Self {
        let line = || Line(std::array::from_fn(|_| Slot::new()));
        Self {
            hits: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            lines: (0..classes).map(|_| line()).collect(),
            used,
            fence,
            alert: Arc::clone(alert),
            touches,
            owned: AtomicBool::new(false),
        }
    }

    pub(crate) fn alert(&self) -> &Alert {
        &self.alert
    }

    /// Hits, and pages that they had in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.pages.load(Relaxed))
    }

    /// How many blocks of this class there are.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.lines.get(class.index()).map_or(0, |line| line.0.iter().filter(|cell| cell.is_full()).count())
    }

    pub(crate) fn take(&self, class: Class) -> Option<Block> {
        self.lines.get(class.index())?.0.iter().find_map(Slot::take)
    }

    /// A block for `len` bytes, counted.
    #[inline]
    fn get(&self, len: usize) -> Option<Block> {
        let class = Class::index_of(len);
        let block = self.lines.get(class)?.0.iter().find_map(Slot::take)?;
        self.count_hit(&block, len);
        Some(block)
    }

    /// The owner counts a block that it got for `len` bytes.
    #[inline]
    pub(crate) fn count_hit(&self, block: &Block, len: usize) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
        let pages = len.min(block.dirty()).div_ceil(PAGE) as u64;
        self.pages.store(self.pages.load(Relaxed) + pages, Relaxed);
        if let Some(touches) = &self.touches {
            touches.touch(block.class());
        }
    }

    /// The owner's put; the block comes back if there is no empty cell. `Ok(false)`: somebody waits, or the pool is
    /// closed.
    #[inline]
    pub(crate) fn put(&self, mut block: Block) -> Result<bool, Block> {
        let Some(line) = self.lines.get(block.class().index()) else { return Err(block) };
        for cell in line.0.iter().take(self.used) {
            match cell.put(block, self.fence) {
                Ok(()) => {
                    // who waits rings the alert, then (behind a barrier) looks into the cells; the owner puts, then
                    // (behind this) looks at the alert: one of the two sees the other
                    compiler_fence(SeqCst);
                    return Ok(self.alert.is_quiet());
                }
                Err(back) => block = back,
            }
        }
        Err(block)
    }
}

/// A thread's ownership of some cells. Not `Send`.
pub(crate) struct Owner {
    pool: u64,
    cells: Arc<Cells>,
    _this_thread: PhantomData<*const ()>,
}

impl Owner {
    /// For this thread, if no other has them.
    pub(crate) fn new(pool: u64, cells: &Arc<Cells>) -> Option<Self> {
        let free = cells.owned.compare_exchange(false, true, AcqRel, Acquire).is_ok();
        free.then(|| Self { pool, cells: Arc::clone(cells), _this_thread: PhantomData })
    }

    pub(crate) fn pool(&self) -> u64 {
        self.pool
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// From now on [`get`] and [`put`] find these cells, until those of another pool take the place.
    pub(crate) fn come_near(&self) {
        let _ = NEAR.try_with(|near| near[way(self.pool)].set(Near { pool: self.pool, cells: &raw const *self.cells }));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // `Err`: the thread is ending, and the place is gone already
        let _ = NEAR.try_with(|near| {
            let near = &near[way(self.pool)];
            if near.get().pool == self.pool {
                near.set(NOBODY);
            }
        });
        self.cells.owned.store(false, Release);
    }
}

/// Where this thread's cells for a pool are.
#[derive(Clone, Copy)]
struct Near {
    pool: u64,
    cells: *const Cells,
}

const NOBODY: Near = Near { pool: u64::MAX, cells: ptr::null() };
/// The pool of blocks that are not put the short way; none has this number, nor [`NOBODY`]'s.
pub(crate) const NOT_NEAR: u64 = u64::MAX - 1;

/// So many pools that were made one after the other have places of their own.
const WAYS: usize = 4;

#[inline]
fn way(pool: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // only the last bits count
    let low = pool as usize;
    low % WAYS
}

thread_local! {
    /// Has no destructor, so that using it asks for none.
    static NEAR: [Cell<Near>; WAYS] = const { [const { Cell::new(NOBODY) }; WAYS] };
}

/// Runs `with` on this thread's cells for the pool, if they are near, or gives `what` back. It must not let go of an
/// owner.
#[inline]
fn near<W, R>(pool: u64, what: W, with: impl FnOnce(&Cells, W) -> R) -> Result<R, W> {
    let Ok(near) = NEAR.try_with(|near| near[way(pool)].get()) else { return Err(what) };
    if near.pool != pool {
        return Err(what);
    }
    // SAFETY: by this file's guarantee an owner of this thread holds the cells; no pool has the number of `NOBODY`. The
    // owner lives for as long as this borrow: it is not `Send`, and `with`, which is one of the two below, drops none.
    let cells = unsafe { &*near.cells };
    Ok(with(cells, what))
}

/// A free block for `len` bytes out of this thread's cells, counted.
#[inline]
pub(crate) fn get(pool: u64, len: usize) -> Option<Block> {
    near(pool, (), |cells, ()| if cells.alert.is_quiet() { cells.get(len) } else { None }).ok().flatten()
}

/// Puts a block into this thread's cells, or gives it back. `Ok(false)`: somebody waits, or the pool is closed.
#[inline]
pub(crate) fn put(block: Block) -> Result<bool, Block> {
    near(block.home(), block, |cells, block| cells.put(block)).unwrap_or_else(Err)
}
