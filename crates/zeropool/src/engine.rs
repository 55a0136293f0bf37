//! What all handles of a pool share, and where a block comes from. Where it goes is in `home.rs`, how new
//! ones are made in `make.rs`.
//!
//! The way of a request, each step tried when the one before has nothing: this thread's cells, the stacks, other
//! threads' cells, room in the budget, room made by giving up free blocks, the queue.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::alert::Alert;
use crate::barrier;
use crate::budget::{Charge, Ledger};
use crate::builder::Settings;
use crate::cache::{self, Caches};
use crate::cells::Plan;
use crate::class::{Class, PAGE};
use crate::error::GetError;
use crate::evict::Policy;
use crate::near::NOT_NEAR;
use crate::slab::{Block, Slab};
use crate::stack::Stacks;
use crate::stats::Counters;
use crate::sync::Mutex;
use crate::wait::{self, Queue, Waiter};

/// What a request is granted: a block, or room for one that it maps itself.
pub(crate) enum Grant {
    Block(Block),
    Room(Charge),
}

pub(crate) struct Engine {
    pub(crate) id: u64,
    pub(crate) settings: Settings,
    /// How many classes fit into the budget.
    classes: usize,
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
    pub(crate) alert: Arc<Alert>,
    pub(crate) caches: Caches,
    pub(crate) stacks: Arc<Stacks>,
    queue: Queue<Grant>,
    pub(crate) policy: Policy,
    /// Shared slabs, by class. Blocks keep them; the last one ends its slab.
    pub(crate) slabs: Box<[Mutex<Vec<Weak<Slab>>>]>,
}

// a panic in a user's code leaves no lock held and nothing half done: every change of the books is one step
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

impl Engine {
    pub(crate) fn new(id: u64, settings: Settings) -> Arc<Self> {
        let policy = Policy::new(settings.eviction);
        let classes = Class::up_to(settings.budget);
        let alert = Arc::new(Alert::new());
        let plan = Plan {
            classes,
            used: settings.cells,
            alone: barrier::has_heavy(),
            alert: Arc::clone(&alert),
            touches: policy.touches().cloned(),
        };
        Arc::new(Self {
            id,
            classes,
            ledger: Ledger::new(settings.budget),
            counters: Counters::default(),
            alert,
            caches: Caches::new(plan),
            stacks: Arc::new(Stacks::new(settings.shards)),
            queue: Queue::new(),
            policy,
            slabs: Class::all().map(|_| Mutex::new(Vec::new())).collect(),
            settings,
        })
    }

    /// The class of a request, if it can ever be met.
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

    /// By what number threads know the pool that they put blocks of this class to the short way, if they do.
    pub(crate) fn home(&self, class: Class) -> u64 {
        let rule = self.settings.rule(class);
        if rule.is_plain() && rule.cached && !self.settings.zero_on_return {
            self.id
        } else {
            NOT_NEAR
        }
    }

    /// A free block without waiting and without mapping, if nobody waits who was here before.
    pub(crate) fn hit(self: &Arc<Self>, class: Class, len: usize) -> Option<Block> {
        if !self.alert.is_quiet() {
            return None;
        }
        cache::with_mine(self, |mine| mine.get(self, class, len)).flatten()
    }

    /// A block now, or why not.
    pub(crate) fn try_get(self: &Arc<Self>, class: Class, len: usize) -> Result<Block, GetError> {
        match self.now(class) {
            Some(grant) => self.redeem(grant, len),
            None => Err(self.spent(len)),
        }
    }

    /// A block when it is this request's turn, or why not when the time is over.
    pub(crate) fn get(
        self: &Arc<Self>,
        class: Class,
        len: usize,
        timeout: Option<Duration>,
    ) -> Result<Block, GetError> {
        // a time that no clock reaches is no deadline
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waiter = match self.queue_up(class) {
            Ok(grant) => return self.redeem(grant, len),
            Err(waiter) => waiter,
        };
        match waiter.wait(deadline) {
            Some(grant) => self.redeem(grant, len),
            None => match self.withdraw(&waiter) {
                Some(grant) => self.redeem(grant, len),
                None => Err(GetError::TimedOut { len }),
            },
        }
    }

    /// Polls a request that may be queued already.
    pub(crate) fn poll(
        self: &Arc<Self>,
        place: &mut Option<Arc<Waiter<Grant>>>,
        class: Class,
        len: usize,
        waker: &std::task::Waker,
    ) -> Poll<Result<Block, GetError>> {
        let waiter = match place {
            Some(waiter) => waiter,
            None => match self.queue_up(class) {
                Ok(grant) => return Poll::Ready(self.redeem(grant, len)),
                Err(waiter) => place.insert(waiter),
            },
        };
        match waiter.poll(waker) {
            Poll::Ready(grant) => {
                *place = None;
                Poll::Ready(self.redeem(grant, len))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Leaves the queue, and passes on what had come meanwhile.
    pub(crate) fn abandon(self: &Arc<Self>, waiter: &Arc<Waiter<Grant>>) {
        if let Some(grant) = self.withdraw(waiter) {
            self.give_back(grant);
            self.serve();
        }
    }

    /// Leaves the queue. The next may fit where this one did not.
    fn withdraw(self: &Arc<Self>, waiter: &Arc<Waiter<Grant>>) -> Option<Grant> {
        self.queue.leave(waiter);
        let grant = waiter.give_up();
        self.serve();
        grant
    }

    fn spent(&self, len: usize) -> GetError {
        GetError::Spent {
            len,
            held: self.ledger.held(),
            budget: self.ledger.limit(),
        }
    }

    /// What there is for this class, if nobody waits. Gives nothing up where that would not be enough.
    fn now(self: &Arc<Self>, class: Class) -> Option<Grant> {
        let mut dropped = Vec::new();
        let line = self.queue.lock();
        let lacks = self.ledger.lacks(class.capacity());
        let possible = line.is_empty() && (lacks == 0 || lacks <= self.free());
        let grant = if possible {
            self.claim(class, &mut dropped)
        } else {
            None
        };
        drop(line);
        grant
    }

    /// The same, or a place at the end of the queue.
    fn queue_up(self: &Arc<Self>, class: Class) -> Result<Grant, Arc<Waiter<Grant>>> {
        let mut dropped = Vec::new();
        let mut line = self.queue.lock();
        let grant = if line.is_empty() {
            self.claim(class, &mut dropped)
        } else {
            None
        };
        if let Some(grant) = grant {
            drop(line);
            return Ok(grant);
        }
        let first = line.is_empty();
        let waiter = Waiter::new(class);
        line.push_back(Arc::clone(&waiter));
        self.alert.set_waiting(true);
        drop(line);
        drop(dropped);
        self.counters.waits.fetch_add(1, Relaxed);
        // a block that came back between the claim and the alert went the short way: look again. Who finds others
        // before it finds the alert set since the first of them came, who does this for all
        if first {
            self.caches.open_all();
        }
        self.serve();
        Err(waiter)
    }

    /// Grants what there is to those who wait, in their order. Called after whatever may have made room.
    pub(crate) fn serve(self: &Arc<Self>) {
        let mut wakers = Vec::new();
        let mut again = true;
        while again && !self.alert.is_quiet() {
            again = false;
            let (mut dropped, mut granted) = (Vec::new(), Vec::new());
            let mut line = self.queue.lock();
            while let Some(first) = line.front() {
                let Some(grant) = self.claim(first.class(), &mut dropped) else {
                    break;
                };
                granted.extend(line.pop_front().map(|first| (first, grant)));
            }
            self.alert.set_waiting(!line.is_empty());
            drop(line);
            // unmapped before anybody maps instead
            drop(dropped);
            for (waiter, grant) in granted {
                match waiter.deliver(grant) {
                    Ok(waker) => wakers.extend(waker),
                    Err(refused) => {
                        self.give_back(refused);
                        again = true;
                    }
                }
            }
        }
        wait::wake_all(wakers);
    }

    /// A free block, or room in the budget, or room made by giving up free blocks, which go to `dropped`: they are off
    /// the budget and remain to be unmapped. Under the queue's lock, so that nobody takes the room from under it.
    fn claim(self: &Arc<Self>, class: Class, dropped: &mut Vec<Block>) -> Option<Grant> {
        if let Some(block) = self.any_free(class) {
            return Some(Grant::Block(block));
        }
        loop {
            if let Some(charge) = Charge::reserve(self, class) {
                return Some(Grant::Room(charge));
            }
            let mut victim = self
                .policy
                .victim(self, self.ledger.lacks(class.capacity()))?;
            if victim.class() == class {
                // it came back just now
                return Some(Grant::Block(victim));
            }
            victim.discharge();
            self.counters.evicted.fetch_add(1, Relaxed);
            dropped.push(victim);
        }
    }

    fn any_free(&self, class: Class) -> Option<Block> {
        if self.ledger.held_in(class) == 0 {
            return None;
        }
        self.stacks
            .pop(0, class)
            .or_else(|| self.caches.steal(class))
    }

    /// Turns a grant into a block, which may need mapping.
    fn redeem(self: &Arc<Self>, grant: Grant, len: usize) -> Result<Block, GetError> {
        match grant {
            Grant::Block(block) => {
                self.counters.hits.fetch_add(1, Relaxed);
                let pages = len.min(block.dirty()).div_ceil(PAGE) as u64;
                self.counters.pages.fetch_add(pages, Relaxed);
                if let Some(touches) = self.policy.touches() {
                    touches.touch(block.class());
                }
                Ok(block)
            }
            Grant::Room(charge) => {
                let class = charge.class();
                self.counters.misses.fetch_add(1, Relaxed);
                self.policy.admitted(class, &self.ledger);
                let made = self.make(charge).or_else(|(refusal, charge)| {
                    // what the system lacks may lie idle here
                    if self.drain() == 0 {
                        return Err((refusal, charge));
                    }
                    let made = self.make(charge);
                    self.serve(); // what went is off the budget
                    made
                });
                made.map_err(|(refusal, charge)| {
                    drop(charge);
                    self.serve(); // the room is free again
                    GetError::refused(len, refusal)
                })
            }
        }
    }
}
