//! Where a block goes: back to the thread, to a stack, to who waits, or to the system.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::cache;
use crate::class::Class;
use crate::engine::{Engine, Grant};
use crate::near;
use crate::slab::Block;

impl Engine {
    /// Where a buffer's block goes when the buffer is dropped.
    #[inline]
    pub(crate) fn put(block: Block) {
        let pool = block.home();
        match near::put(block) {
            Ok(true) => {}
            Ok(false) => Self::alerted(pool),
            Err(block) => Self::put_far(block),
        }
    }

    /// A cell was filled while somebody waited, or the pool was closed.
    #[cold]
    #[inline(never)]
    fn alerted(pool: u64) {
        // if it is gone, so are all its blocks, which hold it: somebody else has emptied the cell
        if let Some(engine) = cache::engine(pool) {
            engine.settle();
        }
    }

    /// What is not to lie in a cell, or what this thread has no empty cell for.
    #[inline(never)]
    fn put_far(mut block: Block) {
        let Some(charge) = block.charge() else { return };
        let engine = charge.engine();
        let (id, rule) = (engine.id, engine.settings.rule(block.class()));
        let short = rule.is_plain() && engine.alert.is_quiet();
        if engine.settings.zero_on_return {
            block.wipe();
        }
        if !short {
            return Self::put_long(block);
        }
        let put = cache::put(id, block, rule.cached).or_else(|block| {
            // a thread's first put to this pool
            if let Some(charge) = block.charge() {
                cache::register(charge.engine());
            }
            cache::put(id, block, rule.cached)
        });
        match put {
            Ok(true) => {}
            Ok(false) => Self::alerted(id),
            Err(block) => Self::put_long(block),
        }
    }

    /// Past the thread's cache: to a stack, or away.
    #[cold]
    fn put_long(block: Block) {
        let Some(engine) = block.charge().map(|charge| Arc::clone(charge.engine())) else {
            return;
        };
        engine.shelve(block);
        if !engine.alert.is_quiet() {
            engine.settle();
        }
    }

    fn shelve(&self, block: Block) {
        let rule = self.settings.rule(block.class());
        if !rule.pooled {
            drop(block);
        } else if rule.is_plain() {
            self.stacks.push(0, block);
        } else if let Some(over) = self.stacks.push_limited(block, rule.limit) {
            self.counters.evicted.fetch_add(1, Relaxed);
            drop(over);
        }
    }

    /// What was granted to somebody who has gone.
    pub(crate) fn give_back(&self, grant: Grant) {
        match grant {
            Grant::Block(block) => self.shelve(block),
            Grant::Room(charge) => drop(charge),
        }
    }

    /// What a put has to see to when it is not quiet.
    fn settle(self: &Arc<Self>) {
        if self.alert.is_closed() {
            self.drain();
        }
        self.serve();
    }

    /// The last handle is gone: nothing is kept from now on.
    pub(crate) fn close(self: &Arc<Self>) {
        self.alert.close();
        self.caches.open_all();
        self.drain();
    }

    /// Gives all free blocks back to the system; how many bytes went.
    pub(crate) fn drain(&self) -> usize {
        let mut bytes = 0;
        for class in Class::all() {
            while let Some(block) = self.coldest(class) {
                bytes += block.capacity();
            }
        }
        bytes
    }

    /// The free block of this class that may as well go first.
    pub(crate) fn coldest(&self, class: Class) -> Option<Block> {
        if self.ledger.held_in(class) == 0 {
            return None;
        }
        self.stacks
            .pop_coldest(class)
            .or_else(|| self.caches.steal(class))
    }

    pub(crate) fn free_in(&self, class: Class) -> usize {
        if self.ledger.held_in(class) == 0 {
            return 0;
        }
        self.stacks.blocks(class) + self.caches.blocks(class)
    }

    /// Bytes of all free blocks.
    pub(crate) fn free(&self) -> usize {
        Class::all()
            .map(|class| self.free_in(class) * class.capacity())
            .sum()
    }

    /// Gives free blocks back to the system until at most `keep` bytes are left of them; how many bytes went.
    pub(crate) fn trim_to(self: &Arc<Self>, keep: usize) -> usize {
        let mut bytes = 0;
        if keep == 0 {
            bytes = self.drain();
        } else {
            let mut free = self.free();
            while let Some(over) = free.checked_sub(keep).filter(|&over| over > 0) {
                let Some(block) = self.policy.victim(self, over) else {
                    break;
                };
                free = free.saturating_sub(block.capacity());
                bytes += block.capacity();
            }
        }
        // what went is off the budget
        self.serve();
        bytes
    }
}

#[cfg(test)]
mod ends {
    use std::sync::{Arc, Weak};

    #[cfg(shuttle)]
    use shuttle::thread;
    #[cfg(not(shuttle))]
    use std::thread;

    use crate::BufferPool;

    /// Buffers return on threads of their own while the pool's last handle goes on another.
    fn end_while_others_return() {
        let pool = BufferPool::builder().budget(1 << 20).build().unwrap();
        let engine = Arc::downgrade(pool.engine());
        let buffers = [4096, 100, 100].map(|len| pool.get(len));
        let mut threads: Vec<_> = buffers
            .map(|buffer| thread::spawn(move || drop(buffer)))
            .into();
        threads.push(thread::spawn(move || drop(pool)));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(
            Weak::strong_count(&engine),
            0,
            "a block was kept, and it keeps its pool"
        );
    }

    #[test]
    #[cfg(not(shuttle))]
    fn nothing_is_left() {
        (0..if cfg!(miri) { 3 } else { 2000 }).for_each(|_| end_while_others_return());
    }

    #[test]
    #[cfg(shuttle)]
    fn nothing_is_left() {
        shuttle::check_random(end_while_others_return, 3000);
        shuttle::check_pct(end_while_others_return, 3000, 3);
    }
}
