//! The state that all handles of a pool share, and the path of a request.
//!
//! A request tries these sources in order and takes the first that has something:
//!
//! 1. the calling thread's magazine,
//! 2. the shared stacks,
//! 3. other threads' magazines,
//! 4. new memory, if the budget has room,
//! 5. new memory, after free objects of other classes were released,
//! 6. the queue: an object or room in the budget, when a buffer is dropped.
//!
//! Steps 1 to 3 run without the queue's lock as long as no request is queued. Every other step holds it, so that no
//! request overtakes an earlier one. `free.rs` has the reverse: what happens to free objects.

mod free;
#[cfg(test)]
mod membarrier_tests;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::budget::Ledger;
use crate::class::{Class, PAGE};
use crate::error::GetError;
use crate::evict::VictimSelection;
use crate::flags::PoolFlags;
use crate::magazine::MagazineSettings;
use crate::magazine::threads::ThreadCaches;
use crate::region::{HUGE, RegionError};
use crate::settings::Settings;
use crate::slab::{Charge, Object, Slab};
use crate::stack::Stacks;
use crate::stats::PoolCounters;
use crate::sync::Mutex;
use crate::wait::{self, Queue, Waiter};

/// The grant to a request, made under the queue's lock: an object, or a charge with which to allocate one.
pub(crate) enum Grant {
    Object(Object),
    Room(Charge),
}

pub(crate) struct Engine {
    id: u64,
    pub(crate) settings: Settings,
    /// Number of classes that fit into the budget.
    classes: usize,
    pub(crate) ledger: Ledger,
    counters: PoolCounters,
    flags: Arc<PoolFlags>,
    caches: ThreadCaches,
    stacks: Arc<Stacks>,
    queue: Queue<Grant>,
    eviction: VictimSelection,
    /// Slabs with room for several objects, by class. Their objects keep them alive.
    slabs: Box<[Mutex<Vec<Weak<Slab>>>]>,
}

// no lock is poisoned and no invariant broken by a panic in a caller's code, which never runs under a lock
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

impl Engine {
    pub(crate) fn new(id: u64, settings: Settings) -> Arc<Self> {
        let eviction = VictimSelection::new(settings.eviction);
        let classes = Class::up_to(settings.budget);
        let flags = Arc::new(PoolFlags::new());
        let stacks = Arc::new(Stacks::new(settings.shards));
        let magazines = MagazineSettings {
            classes,
            slots: settings.thread_cache,
            may_bias: settings.may_bias,
            flags: Arc::clone(&flags),
            touched: eviction.touched().cloned(),
        };
        Arc::new(Self {
            id,
            classes,
            ledger: Ledger::new(settings.budget),
            counters: PoolCounters::default(),
            flags,
            caches: ThreadCaches::new(id, magazines, Arc::clone(&stacks)),
            stacks,
            queue: Queue::new(),
            eviction,
            slabs: Class::all().map(|_| Mutex::new(Vec::new())).collect(),
            settings,
        })
    }

    /// The class of a request, unless its capacity exceeds the budget.
    #[inline]
    pub(crate) fn class(&self, len: usize) -> Result<Class, GetError> {
        let too_large = || GetError::TooLarge {
            len,
            budget: self.ledger.limit(),
        };
        Class::of(len)
            .filter(|class| class.index() < self.classes)
            .ok_or_else(too_large)
    }

    /// A free object, found without mapping memory; `None` as well while requests are queued, which come first.
    pub(crate) fn hit(self: &Arc<Self>, class: Class, len: usize) -> Option<Object> {
        if !self.flags.allows_fast_path() {
            return None;
        }
        let object = self.caches.get(self, class, len)?;
        self.record_hit(class);
        Some(object)
    }

    /// An object without waiting.
    pub(crate) fn try_get(self: &Arc<Self>, class: Class, len: usize) -> Result<Object, GetError> {
        match self.claim_now(class) {
            Some(grant) => self.fulfil(grant, len),
            None => Err(GetError::BudgetExhausted {
                len,
                held: self.ledger.held(),
                budget: self.ledger.limit(),
            }),
        }
    }

    /// An object; blocks until the request is granted or the timeout expires.
    pub(crate) fn get(
        self: &Arc<Self>,
        class: Class,
        len: usize,
        timeout: Option<Duration>,
    ) -> Result<Object, GetError> {
        // a timeout that overflows the clock is no deadline
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waiter = match self.claim_or_enqueue(class) {
            Ok(grant) => return self.fulfil(grant, len),
            Err(waiter) => waiter,
        };
        // a grant that arrives after the deadline and before the cancellation is used: it is charged to this request
        match waiter.wait(deadline).or_else(|| self.cancel(&waiter)) {
            Some(grant) => self.fulfil(grant, len),
            None => Err(GetError::TimedOut { len }),
        }
    }

    /// Polls a request of a future, and queues it if `queued` is `None`.
    pub(crate) fn poll(
        self: &Arc<Self>,
        queued: &mut Option<Arc<Waiter<Grant>>>,
        class: Class,
        len: usize,
        waker: &Waker,
    ) -> Poll<Result<Object, GetError>> {
        let waiter = match queued {
            Some(waiter) => waiter,
            None => match self.claim_or_enqueue(class) {
                Ok(grant) => return Poll::Ready(self.fulfil(grant, len)),
                Err(waiter) => queued.insert(waiter),
            },
        };
        match waiter.poll(waker) {
            Poll::Ready(grant) => {
                *queued = None;
                Poll::Ready(self.fulfil(grant, len))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Cancels a request, and returns what it was granted meanwhile to the pool.
    pub(crate) fn abandon(self: &Arc<Self>, waiter: &Arc<Waiter<Grant>>) {
        if let Some(grant) = self.cancel(waiter) {
            self.return_grant(grant);
            self.serve();
        }
    }

    /// Removes a request from the queue. Returns what it was granted meanwhile.
    fn cancel(self: &Arc<Self>, waiter: &Arc<Waiter<Grant>>) -> Option<Grant> {
        self.queue.remove(waiter);
        let grant = waiter.cancel();
        // the next request may fit where this one did not
        self.serve();
        grant
    }

    /// A grant without waiting, if no request is queued. Releases nothing where that would not make enough room.
    fn claim_now(self: &Arc<Self>, class: Class) -> Option<Grant> {
        let mut released = Vec::new();
        let requests = self.queue.lock();
        let shortfall = self.ledger.shortfall(class.capacity());
        // an eviction that does not make enough room would cost others their free buffers for nothing
        let possible = requests.is_empty() && (shortfall == 0 || shortfall <= self.free());
        let grant = if possible {
            self.claim(class, &mut released)
        } else {
            None
        };
        // `released` is unmapped after the lock is released
        drop(requests);
        grant
    }

    /// A grant without waiting, if no request is queued; otherwise a new request at the end of the queue.
    fn claim_or_enqueue(self: &Arc<Self>, class: Class) -> Result<Grant, Arc<Waiter<Grant>>> {
        let mut released = Vec::new();
        let mut requests = self.queue.lock();
        let grant = if requests.is_empty() {
            self.claim(class, &mut released)
        } else {
            None
        };
        if let Some(grant) = grant {
            drop(requests);
            return Ok(grant);
        }
        let first = requests.is_empty();
        let waiter = Waiter::new(class);
        requests.push_back(Arc::clone(&waiter));
        self.flags.set_has_waiters(true);
        drop(requests);
        drop(released);
        self.counters.waits.fetch_add(1, Relaxed);
        // a thread that put an object between the claim and `set_has_waiters` did not observe the flag: make its put
        // visible, then search again. The flag stays set while requests are queued, so one search, by the first of them,
        // is enough for all.
        if first {
            self.caches.revoke_all();
        }
        self.serve();
        Err(waiter)
    }

    /// Grants queued requests in their order, as far as there is room. Called after every change that may make room.
    pub(crate) fn serve(self: &Arc<Self>) {
        let mut wakers = Vec::new();
        let mut again = true;
        while again && !self.flags.allows_fast_path() {
            again = false;
            let (mut released, mut granted) = (Vec::new(), Vec::new());
            let mut requests = self.queue.lock();
            while let Some(first) = requests.front() {
                let Some(grant) = self.claim(first.class(), &mut released) else {
                    // later requests do not overtake the first
                    break;
                };
                granted.extend(requests.pop_front().map(|first| (first, grant)));
            }
            self.flags.set_has_waiters(!requests.is_empty());
            drop(requests);
            // unmapped before a granted request maps memory, so that the process never holds both
            drop(released);
            for (waiter, grant) in granted {
                match waiter.deliver(grant) {
                    Ok(waker) => wakers.extend(waker),
                    // cancelled meanwhile
                    Err(grant) => {
                        self.return_grant(grant);
                        again = true;
                    }
                }
            }
        }
        // without the lock, since a waker is the caller's code
        wait::wake_all(wakers);
    }

    /// A free object, or room in the budget, if need be after releasing free objects. Those go to `released`: they are
    /// off the budget and remain to be dropped, outside the lock. Under the queue's lock, so that no other request uses
    /// the room that was made.
    fn claim(self: &Arc<Self>, class: Class, released: &mut Vec<Object>) -> Option<Grant> {
        if let Some(object) = self.take_free(class) {
            return Some(Grant::Object(object));
        }
        loop {
            if let Some(charge) = Charge::reserve(self, class) {
                return Some(Grant::Room(charge));
            }
            let shortfall = self.ledger.shortfall(class.capacity());
            let mut victim = self.eviction.victim(&**self, shortfall)?;
            if victim.class() == class {
                // put after the search above
                return Some(Grant::Object(victim));
            }
            victim.discharge();
            self.counters.evicted.fetch_add(1, Relaxed);
            released.push(victim);
        }
    }

    /// For buffers that are released when nothing requests them.
    fn record_hit(&self, class: Class) {
        if let Some(idle) = &self.settings.idle {
            idle.record_hit(class.capacity());
        }
    }

    fn take_free(&self, class: Class) -> Option<Object> {
        if self.ledger.held_in(class) == 0 {
            return None;
        }
        self.stacks
            .pop(0, class)
            .or_else(|| self.caches.take_remote(class))
    }

    /// Turns a grant into an object, for which memory may have to be mapped.
    fn fulfil(self: &Arc<Self>, grant: Grant, len: usize) -> Result<Object, GetError> {
        match grant {
            Grant::Object(object) => {
                self.record_hit(object.class());
                self.counters.hits.fetch_add(1, Relaxed);
                let pages = len.min(object.dirty()).div_ceil(PAGE) as u64;
                self.counters.pages.fetch_add(pages, Relaxed);
                if let Some(touched) = self.eviction.touched() {
                    touched.touch(object.class());
                }
                Ok(object)
            }
            Grant::Room(charge) => {
                let class = charge.class();
                self.counters.misses.fetch_add(1, Relaxed);
                self.eviction.record_miss(class, &**self);
                let allocated = self.allocate(charge).or_else(|(error, charge)| {
                    // the system has no memory, but the pool may hold free memory
                    if self.drain() == 0 {
                        return Err((error, charge));
                    }
                    let allocated = self.allocate(charge);
                    self.serve(); // the drain made room in the budget
                    allocated
                });
                allocated.map_err(|(error, charge)| {
                    drop(charge);
                    self.serve(); // the charge is released
                    GetError::from_region(len, error)
                })
            }
        }
    }

    /// A new object, from a slab with an unused index or from a new slab; or the error, and the charge.
    fn allocate(&self, mut charge: Charge) -> Result<Object, (RegionError, Charge)> {
        let class = charge.class();
        let heap = self.settings.region_options(class).heap;
        let has_callbacks = self.settings.callbacks.is_some();
        // declared before the lock, so dropped after it: the last owner of a slab calls back
        let mut full = Vec::new();
        let mut slabs = self.slabs[class.index()].lock();
        // held weakly: a slab is unmapped with its last object
        slabs.retain(|slab| slab.strong_count() > 0);
        for slab in slabs.iter().filter_map(Weak::upgrade) {
            match slab.allocate(charge) {
                Ok(object) => return Ok(object),
                Err(returned) => charge = returned,
            }
            if has_callbacks {
                full.push(slab);
            }
        }
        // a slab of one object: other requests of the class need not wait for the mapping
        let is_single = heap || class.capacity() >= HUGE;
        // otherwise mapped under the lock, so that requests of this class that arrive meanwhile share this slab instead
        // of mapping others; no callback runs under a lock
        let held = if is_single || has_callbacks {
            drop(slabs);
            None
        } else {
            Some(slabs)
        };
        let (object, slab) = self.allocate_in_new_slab(class, charge)?;
        if !is_single && slab.is_shared() {
            held.unwrap_or_else(|| self.slabs[class.index()].lock())
                .push(Arc::downgrade(&slab));
        }
        Ok(object)
    }

    fn allocate_in_new_slab(
        &self,
        class: Class,
        charge: Charge,
    ) -> Result<(Object, Arc<Slab>), (RegionError, Charge)> {
        let slab = match self.settings.map_slab(class, &self.counters) {
            Ok(slab) => slab,
            Err(error) => return Err((error, charge)),
        };
        let object = slab
            .allocate(charge)
            .unwrap_or_else(|_| unreachable!("a new slab has room for at least one object"));
        Ok((object, slab))
    }
}
