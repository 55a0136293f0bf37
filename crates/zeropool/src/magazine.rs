//! Thread-local magazines of free buffers: the protocol between an owning thread and the threads that take from it.
//!
//! An *object* is one buffer's piece of a slab (the slab allocator's word). A [`Magazine`] belongs to one thread and one
//! pool and has eight slots per size class. Its owner puts and takes without locked instructions; any other thread may
//! take from it when it finds nothing of its own, so a free buffer is never lost to an idle thread.
//!
//! # States
//!
//! Each magazine has a biased lock ([`biased`]) in one of three states:
//!
//! | state | owner takes with | other threads |
//! |---|---|---|
//! | `BIASED` | plain loads and stores, between two stores to `epoch` | must revoke the bias first |
//! | `REVOKING` | atomic exchanges | wait until the owner has left its critical section |
//! | `SHARED` | atomic exchanges | atomic exchanges |
//!
//! # Which thread may do what
//!
//! * The owner alone puts into slots. It is one thread: a [`MagazineOwner`] is not `Send`, and `owned` allows one at most.
//! * The owner takes under [`BiasedLock::try_owner`], or by an exchange where that fails.
//! * Other threads take by exchanges, in the state `SHARED` or from a magazine without an owner, and hold the registry's
//!   lock (`&mut` [`registry::Magazines`]) meanwhile. Setting the bias and making an owner also need that lock.
//!
//! # Invariant
//!
//! While the closure of `try_owner` runs, no other thread takes from the magazine. So each object leaves its slot once.
//!
//! # Why each step is sound
//!
//! * *Owner against revocation.* The owner stores an odd `epoch`, then loads `state`. The revoking thread stores
//!   `REVOKING`, calls `membarrier` and loads `epoch`. [`barrier`] guarantees that at least one of them observes the other's
//!   store: either the owner does not enter, or the revoking thread observes the odd epoch and waits.
//! * *Put against a new waiter.* The owner stores into a slot, then loads `state`. A thread that begins to wait sets the
//!   pool's flag, revokes every bias (with `membarrier`) and then searches the slots. By the same guarantee, the owner
//!   observes the revocation or the waiter finds the object. In the state `SHARED` the owner passes a full fence
//!   before it loads the flag, so that this case needs no `membarrier`: the waiter sets the flag and reads the slots
//!   with `SeqCst` operations.
//! * *Contents.* A put stores its slot with `Release`; an exchange is `SeqCst`; the end of a critical section stores
//!   `epoch` with `Release` and the revoking thread loads it with `Acquire`.
//!
//! # Where `membarrier` is refused
//!
//! The process registers for `membarrier` when a pool is built. Where that fails, no magazine of the pool is ever biased,
//! and everything above holds without a barrier.
//!
//! After a successful registration the kernel refuses the call only if a seccomp filter was installed meanwhile. The
//! revoking thread then cannot know whether the owner is inside its critical section, so it takes nothing from that
//! magazine, and no magazine of the pool is biased again. The state stays `REVOKING` until the owner's next get or put,
//! which is outside the critical section and changes it to `SHARED`. Until then the magazine's free buffers are
//! unavailable to other threads, and a put that raced with the revocation is not found by the waiter; the README names
//! this limit. A thread's own magazine is always available to itself ([`threads::ThreadCaches::take_remote`]). No delay is
//! added in place of the barrier: a sleep orders nothing.
#![allow(unsafe_code)]

pub(crate) mod biased;
pub(crate) mod registry;
pub(crate) mod slot;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
pub(crate) mod tls;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use crate::barrier;
use crate::class::{Class, PAGE};
use crate::clockpro::TouchedClasses;
use crate::flags::PoolFlags;
use crate::magazine::biased::{BiasedLock, NotBiased};
use crate::magazine::slot::ObjectSlot;
use crate::slab::Object;
use crate::sync::{AtomicBool, AtomicU64};

/// Slots per class and thread: eight pointers are one cache line (experiment 1 in EXPERIMENTS.md).
pub(crate) const SLOTS_PER_CLASS: usize = 8;

#[repr(align(64))]
struct ClassSlots([ObjectSlot; SLOTS_PER_CLASS]);

/// Settings that all magazines of a pool share.
pub(crate) struct MagazineSettings {
    /// Classes that fit into the budget.
    pub(crate) classes: usize,
    /// Slots per class in use, at most [`SLOTS_PER_CLASS`].
    pub(crate) slots: usize,
    /// Whether magazines may be biased: the process is registered for `membarrier`.
    pub(crate) may_bias: bool,
    pub(crate) flags: Arc<PoolFlags>,
    pub(crate) touched: Option<TouchedClasses>,
}

/// One thread's free buffers of one pool, and its counters. Aligned so that it shares no cache line with another.
#[repr(align(128))]
pub(crate) struct Magazine {
    lock: BiasedLock,
    /// Hits that the lock's epoch does not count. Only the owner writes it, so a plain store suffices.
    hits: AtomicU64,
    pages: AtomicU64,
    /// One for each class that fits into the budget.
    classes: Box<[ClassSlots]>,
    slots: usize,
    touched: Option<TouchedClasses>,
    may_bias: bool,
    flags: Arc<PoolFlags>,
    /// A running thread owns this magazine.
    owned: AtomicBool,
}

impl Magazine {
    fn new(settings: &MagazineSettings) -> Self {
        let slots = || ClassSlots(std::array::from_fn(|_| ObjectSlot::new()));
        Self {
            lock: BiasedLock::new(),
            hits: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            classes: (0..settings.classes).map(|_| slots()).collect(),
            slots: settings.slots,
            touched: settings.touched.clone(),
            may_bias: settings.may_bias,
            flags: Arc::clone(&settings.flags),
            owned: AtomicBool::new(false),
        }
    }

    pub(crate) fn flags(&self) -> &PoolFlags {
        &self.flags
    }

    /// Free objects of this class in the magazine.
    fn objects(&self, class: Class) -> usize {
        self.classes.get(class.index()).map_or(0, |class| {
            class.0.iter().filter(|slot| slot.is_full()).count()
        })
    }

    /// An object of the class with this number for `len` bytes, counted.
    ///
    /// # Safety
    ///
    /// This thread holds the [`MagazineOwner`] of this magazine.
    #[inline]
    pub(crate) unsafe fn get(&self, class: usize, len: usize) -> Option<Object> {
        let slots = self.classes.get(class)?;
        let exclusive = self.lock.try_owner(|| {
            // SAFETY: other threads take in the state `SHARED` only (`registry::Magazines`), which by `try_owner` does not hold
            // now; what this closure does is visible to them later, and what they did before is visible to it.
            slots
                .0
                .iter()
                .find_map(|slot| unsafe { slot.take_exclusive() })
        });
        match exclusive {
            Ok(object) => object.inspect(|object| self.count_pages(object, len)),
            Err(NotBiased) => self.get_shared(slots, len),
        }
    }

    /// [`get`](Self::get) while other threads may take too. Returns `None` as well when the bias is due to be set again:
    /// the slow path does that.
    #[inline(never)]
    fn get_shared(&self, slots: &ClassSlots, len: usize) -> Option<Object> {
        let stays_shared = self.lock.note_shared_access() || !self.may_bias;
        if !stays_shared || !self.flags.allows_fast_path() {
            return None;
        }
        let object = slots.0.iter().find_map(ObjectSlot::take)?;
        self.count(&object, len);
        Some(object)
    }

    /// Counts an object that the owner got for `len` bytes outside its critical section.
    fn count(&self, object: &Object, len: usize) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
        self.count_pages(object, len);
    }

    #[inline]
    fn count_pages(&self, object: &Object, len: usize) {
        let pages = len.min(object.dirty()).div_ceil(PAGE) as u64;
        self.pages.store(self.pages.load(Relaxed) + pages, Relaxed);
        if let Some(touched) = &self.touched {
            touched.touch(object.class());
        }
    }

    /// The owner's put. Returns the object if no slot is empty. `Ok(false)`: a request waits, or the pool is closed.
    #[inline]
    pub(crate) fn put(&self, mut object: Object) -> Result<bool, Object> {
        let Some(class) = self.classes.get(object.class().index()) else {
            return Err(object);
        };
        for slot in class.0.iter().take(self.slots) {
            match slot.put(object) {
                Ok(()) => {
                    // pairs with the `membarrier` of a thread that begins to wait; see "Put against a new waiter" above
                    barrier::light();
                    return Ok(self.lock.is_biased() || self.complete_shared_put());
                }
                Err(rejected) => object = rejected,
            }
        }
        Err(object)
    }

    /// Completes a put in another state than `BIASED`. Returns false if a request waits or the pool is closed.
    #[inline(never)]
    fn complete_shared_put(&self) -> bool {
        self.lock.complete_revocation();
        // orders the put before the load of the flags, also where `membarrier` was refused: a waiter sets the flag and
        // then reads the slots, both with `SeqCst`
        fence(SeqCst);
        self.flags.allows_fast_path()
    }
}

/// A thread's ownership of a magazine. Not `Send`, so it stays on its thread.
pub(crate) struct MagazineOwner {
    pool: u64,
    magazine: Arc<Magazine>,
    _this_thread: PhantomData<*const ()>,
}

impl MagazineOwner {
    pub(crate) fn pool(&self) -> u64 {
        self.pool
    }

    pub(crate) fn magazine(&self) -> &Magazine {
        &self.magazine
    }

    /// A free object of the class for `len` bytes, counted.
    pub(crate) fn get(&self, class: Class, len: usize) -> Option<Object> {
        // SAFETY: `self` cannot leave its thread.
        unsafe { self.magazine.get(class.index(), len) }
    }

    /// Counts an object that was found outside the magazine.
    pub(crate) fn count(&self, object: &Object, len: usize) {
        self.magazine.count(object, len);
    }

    /// Completes a revocation that was requested by another thread: the calling thread, the owner, is outside its
    /// critical section.
    pub(crate) fn complete_revocation(&self) {
        self.magazine.lock.complete_revocation();
    }

    /// Whether the bias is due to be set again.
    pub(crate) fn may_rebias(&self) -> bool {
        self.magazine.may_bias && self.magazine.lock.may_rebias()
    }
}

impl Drop for MagazineOwner {
    fn drop(&mut self) {
        tls::detach(self);
        self.magazine.owned.store(false, Release);
    }
}
