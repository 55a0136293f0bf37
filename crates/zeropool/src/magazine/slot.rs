//! One slot of a magazine: it owns at most one free object.
//!
//! Guarantee: an object leaves its slot once, by an atomic exchange or under the caller's promise of exclusive access.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::slab::{Object, ObjectHeader};
use crate::sync::AtomicPtr;

/// The owning thread puts, any thread takes. A null pointer is an empty slot.
pub(crate) struct ObjectSlot(AtomicPtr<ObjectHeader>);

impl ObjectSlot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether the slot holds an object now.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.0.load(SeqCst).is_null()
    }

    /// Takes by an exchange, while other threads may take too.
    #[inline]
    pub(crate) fn take(&self) -> Option<Object> {
        // most slots that are searched are empty; a load finds that out without a locked instruction
        if self.0.load(SeqCst).is_null() {
            return None;
        }
        let desc = self.0.swap(ptr::null_mut(), SeqCst);
        if desc.is_null() {
            return None;
        }
        // SAFETY: pointers get in by `Box::into_raw` in `put` only, and the exchange gave this one to this thread
        // only; no `take_exclusive` runs meanwhile, by its contract.
        Some(Object(unsafe { Box::from_raw(desc) }))
    }

    /// Takes with a plain load and a plain store: about half the cost of an exchange (experiment 15).
    ///
    /// # Safety
    ///
    /// No other thread takes from this slot until the effect of this call is visible to that thread, and what other
    /// threads took before is visible to this one.
    #[inline]
    pub(crate) unsafe fn take_exclusive(&self) -> Option<Object> {
        let desc = self.0.load(Relaxed);
        if desc.is_null() {
            return None;
        }
        self.0.store(ptr::null_mut(), Relaxed);
        // SAFETY: pointers get in by `Box::into_raw` in `put` only. No thread took this one before, or the load
        // had found the slot empty, and none will: a later take finds the slot empty.
        Some(Object(unsafe { Box::from_raw(desc) }))
    }

    /// Puts the object in if the slot is empty. For the owner: if two threads put at once, one of the objects
    /// could leak.
    #[inline]
    pub(crate) fn put(&self, object: Object) -> Result<(), Object> {
        // only the owner fills slots: one that it finds empty stays empty, and one that it finds full may have been
        // emptied meanwhile, which costs one free slot until the next put
        if !self.0.load(Relaxed).is_null() {
            return Err(object);
        }
        // `Release`: the thread that takes the pointer by an exchange has the object's header as it was put
        self.0.store(Box::into_raw(object.0), Release);
        Ok(())
    }
}

impl Drop for ObjectSlot {
    fn drop(&mut self) {
        self.take();
    }
}
