//! Thread caches: the cells of all threads of a pool, and what a thread has of all its pools. Nothing is lost to a thread
//! that only frees, that sleeps, or that has ended.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::alert::Alert;
use crate::cells::{Cells, Owner};
use crate::class::Class;
use crate::engine::Engine;
use crate::evict::Touches;
use crate::slab::Block;
use crate::stack::Stacks;
use crate::sync::{Mutex, thread_local};

/// All cells of a pool.
pub(crate) struct Caches {
    all: Mutex<Vec<Arc<Cells>>>,
    /// Classes that fit into the budget.
    classes: usize,
    used: usize,
    /// Whether cells are put to with a fence of their own.
    pub(crate) fence: bool,
    touches: Option<Touches>,
}

impl Caches {
    pub(crate) fn new(classes: usize, used: usize, fence: bool, touches: Option<Touches>) -> Self {
        Self { all: Mutex::new(Vec::new()), classes, used, fence, touches }
    }

    /// Cells whose thread has ended, with what is in them, or new ones; and their number.
    fn adopt(&self, pool: u64, alert: &Arc<Alert>) -> (Owner, usize) {
        let mut all = self.all.lock();
        if let Some(found) = all.iter().zip(0..).find_map(|(cells, number)| Some((Owner::new(pool, cells)?, number))) {
            return found;
        }
        let cells = Arc::new(Cells::new(self.classes, self.used, self.fence, alert, self.touches.clone()));
        let owner = Owner::new(pool, &cells).expect("nobody else knows them");
        all.push(cells);
        (owner, all.len() - 1)
    }

    /// A block of this class out of any thread's cells.
    pub(crate) fn steal(&self, class: Class) -> Option<Block> {
        self.all.lock().iter().find_map(|cells| cells.take(class))
    }

    /// How many blocks of this class lie in cells.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.all.lock().iter().map(|cells| cells.blocks(class)).sum()
    }

    /// Hits, and pages that they had in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let counted = self.all.lock().iter().map(|cells| cells.counted()).collect::<Vec<_>>();
        counted.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

thread_local! {
    /// The caches of this thread, by pool. Numbers of pools are never used again.
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
}

/// What a thread has of a pool.
pub(crate) struct Mine {
    owner: Owner,
    /// Which shard this thread prefers.
    pub(crate) thread: usize,
    /// What does not fit into the cells goes here, without counting references to the engine.
    stacks: Arc<Stacks>,
    engine: Weak<Engine>,
}

impl Mine {
    pub(crate) fn cells(&self) -> &Cells {
        self.owner.cells()
    }

    /// `Ok(false)` as for cells.
    fn put(&self, block: Block, keep: bool) -> bool {
        let left = if keep { self.cells().put(block) } else { Err(block) };
        left.unwrap_or_else(|block| {
            self.stacks.push(self.thread, block);
            self.cells().alert().is_quiet()
        })
    }
}

/// Runs `with` on what this thread has of the pool, if anything, which then comes near; or gives `what` back.
fn mine<W, R>(pool: u64, what: W, with: impl FnOnce(&Mine, W) -> R) -> Result<R, W> {
    let mut what = Some(what);
    let done = MINE.try_with(|mine| {
        let mine = mine.borrow();
        let mine = mine.iter().find(|mine| mine.owner.pool() == pool)?;
        mine.owner.come_near();
        what.take().map(|what| with(mine, what))
    });
    match (done.ok().flatten(), what) {
        (Some(done), _) => Ok(done),
        (None, Some(what)) => Err(what),
        (None, None) => unreachable!("it was taken to run `with`, which returns"),
    }
}

/// The same for a request; the first one gets the thread its cells. `None` while the thread ends.
pub(crate) fn with_mine<R>(engine: &Arc<Engine>, with: impl Fn(&Mine) -> R) -> Option<R> {
    mine(engine.id, (), |mine, ()| with(mine)).ok().or_else(|| {
        register(engine);
        mine(engine.id, (), |mine, ()| with(mine)).ok()
    })
}

/// Gives this thread cells for the pool.
#[cold]
pub(crate) fn register(engine: &Arc<Engine>) {
    // `Err`: the thread is ending, and can do without
    let _ = MINE.try_with(|mine| {
        let (owner, thread) = engine.caches.adopt(engine.id, &engine.alert);
        let mut mine = mine.borrow_mut();
        // caches of pools that are gone
        mine.retain(|mine| !mine.cells().alert().is_closed());
        let stacks = Arc::clone(&engine.stacks);
        mine.push(Mine { owner, thread, stacks, engine: Arc::downgrade(engine) });
    });
}

/// Puts a block into this thread's cells for the pool, if the thread is to keep blocks of its class, or else onto a
/// stack. `Ok(false)`: somebody waits, or the pool is closed. The block comes back if the thread does not know its pool
/// yet, or is ending.
pub(crate) fn put(pool: u64, block: Block, keep: bool) -> Result<bool, Block> {
    mine(pool, block, |mine, block| mine.put(block, keep))
}

/// The engine of a pool that this thread has cells for, unless it is gone.
pub(crate) fn engine(pool: u64) -> Option<Arc<Engine>> {
    mine(pool, (), |mine, ()| mine.engine.upgrade()).ok().flatten()
}
