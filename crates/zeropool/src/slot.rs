//! A cell for one block.
//!
//! What this file guarantees: a [`Slot`] owns the block it holds, and who takes it out is the only one: by an exchange, or
//! by the word of its caller.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::slab::{Block, Desc};
use crate::sync::AtomicPtr;

/// One thread puts, any thread takes.
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

    /// While others may take too.
    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        if self.0.load(SeqCst).is_null() {
            return None;
        }
        let desc = self.0.swap(ptr::null_mut(), SeqCst);
        if desc.is_null() {
            return None;
        }
        // SAFETY: pointers get in by `Box::into_raw` in `put` only, and the exchange gave this one to nobody else, nor
        // does anybody `take_alone` meanwhile: its caller's word.
        Some(Block(unsafe { Box::from_raw(desc) }))
    }

    /// While nobody else does, with plain loads and stores.
    ///
    /// # Safety
    ///
    /// No other thread takes from this cell from before this call until what it did is visible to that thread, and what
    /// other threads took before is visible to this one.
    #[inline]
    pub(crate) unsafe fn take_alone(&self) -> Option<Block> {
        let desc = self.0.load(Relaxed);
        if desc.is_null() {
            return None;
        }
        self.0.store(ptr::null_mut(), Relaxed);
        // SAFETY: pointers get in by `Box::into_raw` in `put` only. Nobody took this one before, or the load had seen the
        // cell empty, and nobody will: the cell is empty for all who take later.
        Some(Block(unsafe { Box::from_raw(desc) }))
    }

    /// Puts the block in if the cell is empty. For the owner of the cell: with two threads putting at once, one of the
    /// blocks could be lost (a leak).
    #[inline]
    pub(crate) fn put(&self, block: Block) -> Result<(), Block> {
        if !self.0.load(Relaxed).is_null() {
            return Err(block);
        }
        self.0.store(Box::into_raw(block.0), Release);
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.take();
    }
}
