//! Free objects: storing them outside the magazines, counting them, and releasing them to the system.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::budget::Ledger;
use crate::class::Class;
use crate::clockpro::FreeBuffers;
use crate::engine::{Engine, Grant};
use crate::evict::Evictable;
use crate::idle::{IdleRelease, Trimmable};
use crate::magazine::tls::NOT_CACHED;
use crate::slab::{Object, OwningPool, PutRules};
use crate::stats::Stats;

impl OwningPool for Engine {
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn cached_id(&self, class: Class) -> u64 {
        let class = self.settings.class(class);
        // only where a put has nothing to do with the object: no limit to keep, no bytes to wipe
        if class.is_unlimited() && class.cached && !self.settings.zero_on_return {
            self.id
        } else {
            NOT_CACHED
        }
    }

    fn put_rules(&self, class: Class) -> PutRules {
        let class = self.settings.class(class);
        PutRules {
            pool: self.id,
            wipe: self.settings.zero_on_return,
            fast: class.is_unlimited()
                && self.settings.idle.is_none()
                && self.flags.allows_fast_path(),
            cached: class.cached,
        }
    }

    fn register_thread(self: Arc<Self>) {
        self.caches.register(&self);
    }

    fn put_shared(self: Arc<Self>, object: Object) {
        let capacity = object.capacity();
        self.store_free(object);
        // a request may wait, or the pool be closed
        if !self.flags.allows_fast_path() {
            Arc::clone(&self).finish_put();
        }
        // after the queue was served: the buffer may be in use again
        if let Some(idle) = &self.settings.idle {
            idle.record_put(&self, capacity);
        }
    }

    fn finish_put(self: Arc<Self>) {
        // nothing would release the object after the pool was closed
        if self.flags.is_closed() {
            self.drain();
        }
        self.serve();
    }
}

impl FreeBuffers for Engine {
    fn held(&self, class: Class) -> usize {
        self.ledger.held_in(class)
    }

    fn has_free(&self, class: Class) -> bool {
        self.free_in(class) > 0
    }

    fn budget(&self) -> usize {
        self.ledger.limit()
    }
}

impl Evictable for Engine {
    fn take_coldest(&self, class: Class) -> Option<Object> {
        // most classes of most pools have no memory, and need no search
        if self.ledger.held_in(class) == 0 {
            return None;
        }
        self.stacks
            .pop_coldest(class)
            .or_else(|| self.caches.take_remote(class))
    }
}

impl Trimmable for Engine {
    fn free_bytes(&self) -> usize {
        self.free()
    }

    fn release_to(self: &Arc<Self>, keep: usize) {
        self.trim_to(keep);
    }

    fn idle(&self) -> Option<&IdleRelease> {
        self.settings.idle.as_ref()
    }
}

impl Engine {
    fn store_free(&self, object: Object) {
        let class = self.settings.class(object.class());
        if !class.pooled {
            drop(object);
        } else if class.is_unlimited() {
            self.stacks.push(0, object);
        } else if let Some(surplus) = self.stacks.push_limited(object, class.limit) {
            self.counters.evicted.fetch_add(1, Relaxed);
            drop(surplus);
        }
    }

    /// Returns what was granted to a request that was cancelled. The caller serves the queue afterwards.
    pub(super) fn return_grant(&self, grant: Grant) {
        match grant {
            Grant::Object(object) => self.store_free(object),
            Grant::Room(charge) => drop(charge),
        }
    }

    /// Closes the pool when its last handle is dropped: free objects are released, now and from now on.
    pub(crate) fn close(self: &Arc<Self>) {
        // the flag first: a put that comes later observes it and drains, one that came before is visible after the
        // revocation and drained here
        self.flags.close();
        self.caches.revoke_all();
        self.drain();
    }

    /// Releases all free objects to the system. Returns their bytes.
    pub(super) fn drain(&self) -> usize {
        let mut bytes = 0;
        for class in Class::all() {
            while let Some(object) = self.take_coldest(class) {
                bytes += object.capacity();
            }
        }
        bytes
    }

    /// Number of free objects of this class.
    fn free_in(&self, class: Class) -> usize {
        if self.ledger.held_in(class) == 0 {
            return 0;
        }
        self.stacks.objects(class) + self.caches.objects(class)
    }

    /// Bytes of all free objects.
    pub(super) fn free(&self) -> usize {
        Class::all()
            .map(|class| self.free_in(class) * class.capacity())
            .sum()
    }

    /// Releases free objects to the system until at most `keep` bytes of them are left. Returns the released bytes.
    pub(crate) fn trim_to(self: &Arc<Self>, keep: usize) -> usize {
        let mut bytes = 0;
        if keep == 0 {
            // all of them, so that no order has to be found
            bytes = self.drain();
        } else {
            let mut free = self.free();
            while let Some(surplus) = free.checked_sub(keep).filter(|&surplus| surplus > 0) {
                let Some(object) = self.eviction.victim(&**self, surplus) else {
                    break;
                };
                free = free.saturating_sub(object.capacity());
                bytes += object.capacity();
            }
        }
        // the budget has room now
        self.serve();
        bytes
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let (hits, pages) = self.caches.counted();
        let free = self.free();
        let resident = self.ledger.held();
        Stats {
            hits: hits + counters.hits.load(Relaxed),
            misses: counters.misses.load(Relaxed),
            waits: counters.waits.load(Relaxed),
            evicted: counters.evicted.load(Relaxed),
            resident,
            // the numbers are read one after another, and objects move meanwhile
            in_use: resident.saturating_sub(free),
            free,
            budget: self.ledger.limit(),
            mapped: counters.slab_bytes.mapped.load(Relaxed),
            pinned: counters.slab_bytes.pinned.load(Relaxed),
            faults_avoided: pages + counters.pages.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod close_tests {
    use std::sync::{Arc, Weak};

    #[cfg(shuttle)]
    use shuttle::thread;
    #[cfg(not(shuttle))]
    use std::thread;

    use crate::BufferPool;

    /// Threads return one buffer each while another drops the pool's last handle.
    fn close_while_buffers_return() {
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
            "an object was kept after the pool was closed, and it holds the pool"
        );
    }

    #[test]
    #[cfg(not(shuttle))]
    fn a_closed_pool_keeps_no_object() {
        (0..if cfg!(miri) { 3 } else { 2000 }).for_each(|_| close_while_buffers_return());
    }

    #[test]
    #[cfg(shuttle)]
    fn a_closed_pool_keeps_no_object() {
        shuttle::check_random(close_while_buffers_return, 3000);
        shuttle::check_pct(close_while_buffers_return, 3000, 3);
    }
}
