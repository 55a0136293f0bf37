//! The biased lock between its owner and another thread that takes objects: each object is taken exactly once. Not in
//! `biased.rs`, which `tests/interleavings/main.rs` compiles with loom's atomics.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

use crate::barrier;
use crate::magazine::biased::{BiasedLock, NotBiased};
use crate::sync::{AtomicUsize, Mutex};

/// A magazine of one slot. Objects are numbers from 1; 0 is an empty slot.
struct OneSlot {
    lock: BiasedLock,
    registry: Mutex<()>,
    slot: AtomicUsize,
    /// How often each object was taken.
    taken: Vec<AtomicUsize>,
}

impl OneSlot {
    fn count(&self, object: usize) {
        if object != 0 {
            self.taken[object - 1].fetch_add(1, Relaxed);
        }
    }

    fn bias(&self) {
        let _registry = self.registry.lock();
        self.lock.set_biased(true);
    }

    /// Does the steps of `Magazines::take_remote`.
    fn take_remote(&self) {
        let _registry = self.registry.lock();
        if !self.lock.is_shared() {
            self.lock.request_revocation();
            if !barrier::heavy() {
                return;
            }
            self.lock.finish_revocation();
        }
        self.count(self.slot.swap(0, SeqCst));
        self.lock.note_remote_take();
    }

    /// The owner's put of an object and its get, which finds the slot empty if the other thread took the object.
    fn put_and_get(&self, object: usize) {
        self.slot.store(object, Release);
        let found = self.lock.try_owner(|| {
            let object = self.slot.load(Relaxed);
            self.slot.store(0, Relaxed);
            (object != 0).then_some(object)
        });
        match found {
            Ok(object) => self.count(object.unwrap_or(0)),
            Err(NotBiased) => {
                if !self.lock.note_shared_access() || object.is_multiple_of(2) {
                    self.bias();
                }
                // sound while biased too: an exchange, and other threads revoke the bias first
                self.count(self.slot.swap(0, SeqCst));
            }
        }
    }
}

/// Where `membarrier` is missing, every remote take is refused and the owner takes all objects.
fn check_each_object_is_taken_once(objects: usize, remote_takes: usize) {
    let _ = barrier::register();
    let slot = Arc::new(OneSlot {
        lock: BiasedLock::new(),
        registry: Mutex::new(()),
        slot: AtomicUsize::new(0),
        taken: (0..objects).map(|_| AtomicUsize::new(0)).collect(),
    });
    slot.bias();
    let other = thread::spawn({
        let slot = Arc::clone(&slot);
        move || (0..remote_takes).for_each(|_| slot.take_remote())
    });
    (1..=objects).for_each(|object| slot.put_and_get(object));
    other.join().unwrap();
    assert!(slot.taken.iter().all(|taken| taken.load(Relaxed) == 1));
}

#[test]
#[cfg(not(shuttle))]
fn owner_and_remote_thread_take_each_object_once() {
    if !barrier::register() {
        println!("SKIPPED: this system has no membarrier");
        return;
    }
    let (objects, remote_takes) = if cfg!(miri) {
        (30, 10)
    } else {
        (500_000, 20_000)
    };
    check_each_object_is_taken_once(objects, remote_takes);
}

#[test]
#[cfg(shuttle)]
fn owner_and_remote_thread_take_each_object_once() {
    shuttle::check_random(|| check_each_object_is_taken_once(4, 2), 10_000);
    shuttle::check_pct(|| check_each_object_is_taken_once(4, 2), 10_000, 3);
}
