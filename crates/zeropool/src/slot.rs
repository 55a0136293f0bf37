//! One-block cells of the thread caches.
//!
//! What this file guarantees: a [`Slot`] owns the block it holds; taking it out is one atomic exchange, so one taker gets
//! it.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::slab::{Block, Desc};
use crate::sync::AtomicPtr;

/// A cell for one block. One thread puts, any thread takes.
pub(crate) struct Slot(AtomicPtr<Desc>);

impl Slot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether there is a block now.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.0.load(SeqCst).is_null()
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        if self.0.load(SeqCst).is_null() {
            return None;
        }
        let desc = self.0.swap(ptr::null_mut(), SeqCst);
        if desc.is_null() {
            return None;
        }
        // SAFETY: pointers get in by `Box::into_raw` in `put` only, and the exchange gave this one to nobody else.
        Some(Block(unsafe { Box::from_raw(desc) }))
    }

    /// Puts the block in if the cell is empty. For the owner of the cell: with two threads putting at once, one of the
    /// blocks could be lost (a leak).
    ///
    /// With `fence` this is ordered before whatever the thread reads next, by everybody's clock. Without, whoever
    /// depends on that order calls `membarrier`.
    #[inline]
    pub(crate) fn put(&self, block: Block, fence: bool) -> Result<(), Block> {
        if !self.0.load(Relaxed).is_null() {
            return Err(block);
        }
        let desc = Box::into_raw(block.0);
        if fence {
            self.0.swap(desc, SeqCst);
        } else {
            self.0.store(desc, Release);
        }
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.take();
    }
}
