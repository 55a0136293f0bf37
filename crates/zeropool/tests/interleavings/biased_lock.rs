//! The biased lock of a thread's magazine, explored with loom: all interleavings of two threads with at most four
//! preemptions, and all values that the memory model lets a load return. The oracle: no object is taken twice, none is
//! lost, no put is missed by a waiter. Without either side of the barrier, loom must find the failure.
//! `RUSTFLAGS="--cfg shuttle" cargo test --test interleavings biased_lock`.
//!
//! The explored file is `src/magazine/biased.rs` itself, with loom's atomics in place of the standard library's. Not
//! explored is the claim that a compiler fence and `membarrier` are together as strong as two full fences: the kernel
//! guarantees that.

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;

use crate::barrier;
use crate::biased::{BiasedLock, NotBiased};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum HeavySide {
    Works,
    /// A wrong implementation, which the tests must find.
    DoesNothing,
    IsRefused,
}

#[derive(Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) light: bool,
    pub(crate) heavy: HeavySide,
    /// The full fence of a put into a shared magazine.
    shared_put: bool,
}

const COMPLETE: Barrier = Barrier {
    light: true,
    heavy: HeavySide::Works,
    shared_put: true,
};
const WITHOUT_LIGHT: Barrier = Barrier {
    light: false,
    ..COMPLETE
};
const WITHOUT_HEAVY: Barrier = Barrier {
    heavy: HeavySide::DoesNothing,
    ..COMPLETE
};
/// The light side orders nothing where its counterpart is refused.
const REFUSED: Barrier = Barrier {
    light: false,
    heavy: HeavySide::IsRefused,
    ..COMPLETE
};

thread_local! {
    /// The barrier of the model that runs on this thread. All threads of a model run on one thread of the system.
    pub(crate) static BARRIER: Cell<Barrier> = const { Cell::new(COMPLETE) };
}

fn explore(barrier: Barrier, body: impl Fn() + Sync + Send + 'static) {
    BARRIER.set(barrier);
    let mut model = loom::model::Builder::new();
    // without a bound the models do not finish; errors of two threads that rarely wait need few preemptions
    model.preemption_bound = Some(4);
    model.check(body);
}

const OBJECTS: usize = 2;

/// A magazine of one slot. Objects are numbers from 1; 0 is an empty slot.
struct OneSlot {
    lock: BiasedLock,
    registry: Mutex<()>,
    slot: AtomicUsize,
    /// The value that the owner wrote into each object before it was put.
    contents: [AtomicUsize; OBJECTS],
    /// How often each object was taken. Atomics of the standard library, which order nothing in the model.
    taken: [std::sync::atomic::AtomicUsize; OBJECTS],
    has_waiters: AtomicUsize,
}

impl OneSlot {
    fn new(biased: bool) -> Arc<Self> {
        let magazine = Self {
            lock: BiasedLock::new(),
            registry: Mutex::new(()),
            slot: AtomicUsize::new(0),
            contents: std::array::from_fn(|_| AtomicUsize::new(0)),
            taken: Default::default(),
            has_waiters: AtomicUsize::new(0),
        };
        magazine.lock.set_biased(biased);
        Arc::new(magazine)
    }

    /// Counts an object, whose contents must be visible to the thread that took it.
    fn count(&self, object: usize) {
        if object != 0 {
            assert_eq!(
                self.contents[object - 1].load(Relaxed),
                object,
                "the owner's write to the object is not visible"
            );
            assert_eq!(
                self.taken[object - 1].fetch_add(1, Relaxed),
                0,
                "object taken twice"
            );
        }
    }

    /// Does the steps of `ObjectSlot::put`, by the owner.
    fn put(&self, object: usize) {
        self.contents[object - 1].store(object, Relaxed);
        self.slot.store(object, Release);
    }

    /// Does the steps of `Magazine::put` after the slot was filled. Returns false if the owner observes a waiter.
    fn complete_put(&self) -> bool {
        barrier::light();
        if self.lock.is_biased() {
            return true;
        }
        self.lock.complete_revocation();
        if BARRIER.get().shared_put {
            fence(SeqCst);
        }
        self.has_waiters.load(SeqCst) == 0
    }

    /// Does the steps of `ObjectSlot::take`, by any thread.
    fn take(&self) -> usize {
        if self.slot.load(SeqCst) == 0 {
            0
        } else {
            self.slot.swap(0, SeqCst)
        }
    }

    /// Does the steps of `Magazine::get`, by the owner. With `rebias`, sets the bias again after a shared access.
    fn get(&self, rebias: bool) {
        let found = self.lock.try_owner(|| {
            // the steps of `ObjectSlot::take_exclusive`
            let object = self.slot.load(Relaxed);
            if object != 0 {
                self.slot.store(0, Relaxed);
            }
            (object != 0).then_some(object)
        });
        match found {
            Ok(object) => self.count(object.unwrap_or(0)),
            Err(NotBiased) => {
                self.lock.note_shared_access();
                self.count(self.take());
                if rebias {
                    let _registry = self.registry.lock().unwrap();
                    self.lock.set_biased(true);
                }
            }
        }
    }

    /// Does the steps of `Magazines::take_remote`. Returns 0 also where the bias cannot be revoked.
    fn take_remote(&self) -> usize {
        let _registry = self.registry.lock().unwrap();
        if !self.lock.is_shared() {
            self.lock.request_revocation();
            if !barrier::heavy() {
                return 0;
            }
            self.lock.finish_revocation();
        }
        let object = self.take();
        self.lock.note_remote_take();
        object
    }
}

/// The owner puts and gets while another thread takes: each object is taken by one of the two.
fn each_object_is_taken_once(barrier: Barrier) {
    explore(barrier, || {
        let magazine = OneSlot::new(true);
        let other = thread::spawn({
            let magazine = Arc::clone(&magazine);
            move || magazine.count(magazine.take_remote())
        });
        for object in 1..=OBJECTS {
            magazine.put(object);
            // a refused pool is never biased again
            magazine.get(object == 1 && BARRIER.get().heavy != HeavySide::IsRefused);
        }
        other.join().unwrap();
        let taken = magazine.taken.iter();
        assert!(
            taken.into_iter().all(|taken| taken.load(Relaxed) == 1),
            "an object was never taken"
        );
    });
}

/// The owner puts an object and then checks for waiters, while another thread begins to wait and then searches for
/// objects: at least one of the two observes the other.
fn no_put_is_missed(barrier: Barrier, biased: bool) {
    explore(barrier, move || {
        let magazine = OneSlot::new(biased);
        let waiter = thread::spawn({
            let magazine = Arc::clone(&magazine);
            move || {
                magazine.has_waiters.store(1, SeqCst);
                if !biased {
                    // loom treats `SeqCst` accesses as `AcqRel`; the store above and the load of the slot are both
                    // `SeqCst`, and this fence gives them that order in the model
                    fence(SeqCst);
                }
                magazine.take_remote()
            }
        });
        magazine.put(1);
        let complete = magazine.complete_put();
        assert!(
            waiter.join().unwrap() == 1 || !complete,
            "the put was missed"
        );
    });
}

#[test]
fn with_both_sides_of_the_barrier_no_object_is_lost_and_no_put_missed() {
    each_object_is_taken_once(COMPLETE);
    no_put_is_missed(COMPLETE, true);
}

/// A pool that could not register for `membarrier` biases no magazine.
#[test]
fn an_unbiased_lock_needs_no_barrier() {
    no_put_is_missed(REFUSED, false);
}

#[test]
#[should_panic = "the put was missed"]
fn a_put_under_an_unbiased_lock_needs_its_fence() {
    let barrier = Barrier {
        shared_put: false,
        ..REFUSED
    };
    no_put_is_missed(barrier, false);
}

#[test]
fn a_refused_barrier_leaves_every_object_to_the_owner() {
    each_object_is_taken_once(REFUSED);
}

/// After a late refusal the owner's next put reaches the waiter, as it completes the revocation.
#[test]
fn the_owners_next_put_completes_a_refused_revocation() {
    explore(REFUSED, || {
        let magazine = OneSlot::new(true);
        let waiter = thread::spawn({
            let magazine = Arc::clone(&magazine);
            move || {
                magazine.has_waiters.store(1, SeqCst);
                magazine.take_remote()
            }
        });
        magazine.put(1);
        assert_eq!(
            waiter.join().unwrap(),
            0,
            "taken although the bias was not revoked"
        );
        assert!(!magazine.complete_put(), "the put missed the waiter");
        assert_eq!(magazine.take_remote(), 1);
    });
}

#[test]
#[should_panic = "object taken twice"]
fn a_remote_take_needs_the_light_side() {
    each_object_is_taken_once(WITHOUT_LIGHT);
}

#[test]
#[should_panic = "object taken twice"]
fn a_remote_take_needs_the_heavy_side() {
    each_object_is_taken_once(WITHOUT_HEAVY);
}

#[test]
#[should_panic = "the put was missed"]
fn a_put_needs_the_light_side() {
    no_put_is_missed(WITHOUT_LIGHT, true);
}

#[test]
#[should_panic = "the put was missed"]
fn a_put_needs_the_heavy_side() {
    no_put_is_missed(WITHOUT_HEAVY, true);
}
