//! What one thread keeps for one pool: a few cells per class, which it uses without a lock and which any other thread may
//! empty.
//!
//! What this file guarantees: blocks are taken by the owner alone while [`Gate::alone`] runs, and by exchanges otherwise.
//! The owner is one thread, as an [`Owner`] cannot leave its thread and there is one at most (`owned`); all others, and
//! whoever closes a gate or makes an owner, have [`Members`] by `&mut`, which is behind the pool's lock.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use crate::alert::Alert;
use crate::barrier;
use crate::class::{Class, PAGE};
use crate::evict::Touches;
use crate::gate::{Gate, NotAlone};
use crate::near;
use crate::slab::Block;
use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicU64};

/// Cells per class and thread: one cache line.
pub(crate) const CELLS: usize = 8;

#[repr(align(64))]
struct Line([Slot; CELLS]);

/// What all cells of a pool have in common.
pub(crate) struct Plan {
    /// Classes that fit into the budget.
    pub(crate) classes: usize,
    /// How many cells of a line are used.
    pub(crate) used: usize,
    /// Whether owners may be alone: there is a barrier's heavy side.
    pub(crate) alone: bool,
    pub(crate) alert: Arc<Alert>,
    pub(crate) touches: Option<Touches>,
}

/// One thread's cells for one pool, and what it counted. On cache lines of its own.
#[repr(align(128))]
pub(crate) struct Cells {
    gate: Gate,
    /// What the gate has not counted. By the owner alone, so without locked instructions.
    hits: AtomicU64,
    pages: AtomicU64,
    /// One for each class that fits into the budget.
    lines: Box<[Line]>,
    used: usize,
    touches: Option<Touches>,
    alone: bool,
    alert: Arc<Alert>,
    /// A living thread has it.
    owned: AtomicBool,
}

impl Cells {
    fn new(plan: &Plan) -> Self {
        let line = || Line(std::array::from_fn(|_| Slot::new()));
        Self {
            gate: Gate::new(),
            hits: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            lines: (0..plan.classes).map(|_| line()).collect(),
            used: plan.used,
            touches: plan.touches.clone(),
            alone: plan.alone,
            alert: Arc::clone(&plan.alert),
            owned: AtomicBool::new(false),
        }
    }

    pub(crate) fn alert(&self) -> &Alert {
        &self.alert
    }

    /// How many blocks of this class there are.
    fn blocks(&self, class: Class) -> usize {
        self.lines.get(class.index()).map_or(0, |line| {
            line.0.iter().filter(|cell| cell.is_full()).count()
        })
    }

    /// A block of the class with this number for `len` bytes, counted.
    ///
    /// # Safety
    ///
    /// This thread has the [`Owner`].
    #[inline]
    pub(crate) unsafe fn get(&self, class: usize, len: usize) -> Option<Block> {
        let line = self.lines.get(class)?;
        let alone = self.gate.alone(|| {
            // SAFETY: strangers take from cells with an open gate only (`Members`), which by `alone` none has now; they
            // see what is done here, as this saw what they had done.
            line.0.iter().find_map(|cell| unsafe { cell.take_alone() })
        });
        match alone {
            Ok(block) => block.inspect(|block| self.count_pages(block, len)),
            Err(NotAlone) => self.get_shared(line, len),
        }
    }

    /// The same while others may take too. None, too, if it is time to close the gate.
    #[inline(never)]
    fn get_shared(&self, line: &Line, len: usize) -> Option<Block> {
        let patient = self.gate.share() || !self.alone;
        if !patient || !self.alert.is_quiet() {
            return None;
        }
        let block = line.0.iter().find_map(Slot::take)?;
        self.count(&block, len);
        Some(block)
    }

    /// The owner counts a block that it got for `len` bytes, not by being alone.
    fn count(&self, block: &Block, len: usize) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
        self.count_pages(block, len);
    }

    #[inline]
    fn count_pages(&self, block: &Block, len: usize) {
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
        let Some(line) = self.lines.get(block.class().index()) else {
            return Err(block);
        };
        for cell in line.0.iter().take(self.used) {
            match cell.put(block) {
                Ok(()) => {
                    // who waits rings the alert, opens the gate and (behind the barrier of that) looks into the cells;
                    // the owner puts, then (behind this) looks at the gate: one of the two sees the other
                    barrier::light();
                    return Ok(self.gate.is_closed() || self.is_quiet());
                }
                Err(back) => block = back,
            }
        }
        Err(block)
    }

    /// What a put with an open gate has to look at. The gate may be open for long, so the alert is looked at itself, by
    /// the same argument: who waits passes a barrier between ringing it and looking.
    #[inline(never)]
    fn is_quiet(&self) -> bool {
        if !self.alone {
            // nobody has a heavy side for the light one above; who waits rings and looks by `SeqCst`
            fence(SeqCst);
        }
        self.alert.is_quiet()
    }
}

/// A thread's ownership of some cells. Not `Send`.
pub(crate) struct Owner {
    pool: u64,
    cells: Arc<Cells>,
    _this_thread: PhantomData<*const ()>,
}

impl Owner {
    pub(crate) fn pool(&self) -> u64 {
        self.pool
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// A free block of the class for `len` bytes, counted.
    pub(crate) fn get(&self, class: Class, len: usize) -> Option<Block> {
        // SAFETY: `self` cannot leave its thread.
        unsafe { self.cells.get(class.index(), len) }
    }

    /// Counts a block that was got elsewhere.
    pub(crate) fn count(&self, block: &Block, len: usize) {
        self.cells.count(block, len);
    }

    /// Whether the gate might as well be closed.
    pub(crate) fn is_calm(&self) -> bool {
        self.cells.alone && self.cells.gate.is_calm()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        near::go(self);
        self.cells.owned.store(false, Release);
    }
}

/// All cells of a pool.
pub(crate) struct Members {
    plan: Plan,
    all: Vec<Arc<Cells>>,
}

impl Members {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            all: Vec::new(),
        }
    }

    /// Cells whose thread has ended, with what is in them, or new ones; and their number.
    pub(crate) fn adopt(&mut self, pool: u64) -> (Owner, usize) {
        let number = self
            .all
            .iter()
            .position(|cells| !cells.owned.load(Acquire))
            .unwrap_or_else(|| {
                self.all.push(Arc::new(Cells::new(&self.plan)));
                self.all.len() - 1
            });
        let cells = Arc::clone(&self.all[number]);
        cells.owned.store(true, Relaxed);
        let owner = Owner {
            pool,
            cells,
            _this_thread: PhantomData,
        };
        self.close(&owner);
        (owner, number)
    }

    /// The owner, which is not inside, has its cells for itself, unless somebody waits or the pool is closed. Who begins
    /// to wait or closes it rings the alert first and opens all gates then.
    pub(crate) fn close(&mut self, owner: &Owner) {
        if self
            .all
            .iter()
            .any(|cells| Arc::ptr_eq(cells, &owner.cells))
        {
            owner
                .cells
                .gate
                .close(self.plan.alone && self.plan.alert.is_quiet());
        }
    }

    /// A block of this class out of any thread's cells, of those first that are open already. None of threads whose gate
    /// does not open because the system refuses the barrier.
    pub(crate) fn steal(&mut self, class: Class) -> Option<Block> {
        let open = self
            .all
            .iter()
            .filter(|cells| Self::is_open(cells))
            .find_map(|cells| Self::rob(cells, class));
        open.or_else(|| {
            let closed = |cells: &&Arc<Cells>| !Self::is_open(cells) && cells.blocks(class) > 0;
            let mut closed = self.all.iter().filter(closed);
            closed.find_map(|cells| {
                if Self::open(&[cells]) {
                    Self::rob(cells, class)
                } else {
                    None
                }
            })
        })
    }

    /// Opens all gates. What was put before, and has not seen the alert that was rung before this, is visible after.
    pub(crate) fn open_all(&mut self) {
        if self.plan.alone {
            let all: Vec<_> = self.all.iter().collect();
            if !Self::open(&all) {
                // nobody's puts are waited for in vain: no processor keeps a store to itself for as long as this
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }

    fn open(some: &[&Arc<Cells>]) -> bool {
        some.iter().for_each(|cells| cells.gate.ask());
        let open = barrier::heavy();
        if open {
            some.iter().for_each(|cells| cells.gate.open());
        }
        open
    }

    /// Whether others may take: there is no owner, and will be none as long as `self` is borrowed, or it shares.
    fn is_open(cells: &Cells) -> bool {
        !cells.owned.load(Acquire) || cells.gate.is_open()
    }

    /// From cells that are open.
    fn rob(cells: &Cells, class: Class) -> Option<Block> {
        let block = cells
            .lines
            .get(class.index())?
            .0
            .iter()
            .find_map(Slot::take)?;
        cells.gate.robbed();
        Some(block)
    }

    /// How many blocks of this class lie in cells.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.all.iter().map(|cells| cells.blocks(class)).sum()
    }

    /// Hits, and pages that they had in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let hits = self
            .all
            .iter()
            .map(|cells| cells.gate.found() + cells.hits.load(Relaxed))
            .sum();
        (
            hits,
            self.all.iter().map(|cells| cells.pages.load(Relaxed)).sum(),
        )
    }
}
