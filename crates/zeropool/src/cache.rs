//! Thread caches: the cells of all threads of a pool, and what a thread has of all its pools. Nothing is lost to a thread
//! that only frees, that sleeps, or that has ended.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::cells::{Members, Owner, Plan};
use crate::class::Class;
use crate::engine::Engine;
use crate::near;
use crate::slab::Block;
use crate::stack::Stacks;
use crate::sync::{Mutex, thread_local};

/// All cells of a pool.
pub(crate) struct Caches(Mutex<Members>);

impl Caches {
    pub(crate) fn new(plan: Plan) -> Self {
        Self(Mutex::new(Members::new(plan)))
    }

    /// A block of this class out of any thread's cells.
    pub(crate) fn steal(&self, class: Class) -> Option<Block> {
        self.0.lock().steal(class)
    }

    /// After the alert was rung: whoever puts from now on hears it, and what was put before is to be seen.
    pub(crate) fn open_all(&self) {
        self.0.lock().open_all();
    }

    /// How many blocks of this class lie in cells.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.0.lock().blocks(class)
    }

    /// Hits, and pages that they had in memory already.
    pub(crate) fn counted(&self) -> (u64, u64) {
        self.0.lock().counted()
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
    thread: usize,
    /// What does not fit into the cells goes here, without counting references to the engine.
    stacks: Arc<Stacks>,
    engine: Weak<Engine>,
}

impl Mine {
    /// A free block for `len` bytes, counted: of the thread's own, from the stacks, or another's.
    pub(crate) fn get(&self, engine: &Engine, class: Class, len: usize) -> Option<Block> {
        if self.owner.is_calm() {
            engine.caches.0.lock().close(&self.owner);
        }
        self.owner.get(class, len).or_else(|| {
            let block = self
                .stacks
                .pop(self.thread, class)
                .or_else(|| engine.caches.steal(class))?;
            self.owner.count(&block, len);
            Some(block)
        })
    }

    /// `Ok(false)` as for cells.
    fn put(&self, block: Block, keep: bool) -> bool {
        let left = if keep {
            self.owner.cells().put(block)
        } else {
            Err(block)
        };
        left.unwrap_or_else(|block| {
            self.stacks.push(self.thread, block);
            self.owner.cells().alert().is_quiet()
        })
    }
}

/// Runs `with` on what this thread has of the pool, if anything, which then comes near; or gives `what` back.
fn mine<W, R>(pool: u64, what: W, with: impl FnOnce(&Mine, W) -> R) -> Result<R, W> {
    let mut what = Some(what);
    let done = MINE.try_with(|mine| {
        let mine = mine.borrow();
        let mine = mine.iter().find(|mine| mine.owner.pool() == pool)?;
        near::come(&mine.owner);
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
        let (owner, thread) = engine.caches.0.lock().adopt(engine.id);
        let mut mine = mine.borrow_mut();
        // caches of pools that are gone
        mine.retain(|mine| !mine.owner.cells().alert().is_closed());
        let stacks = Arc::clone(&engine.stacks);
        mine.push(Mine {
            owner,
            thread,
            stacks,
            engine: Arc::downgrade(engine),
        });
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
    mine(pool, (), |mine, ()| mine.engine.upgrade())
        .ok()
        .flatten()
}
