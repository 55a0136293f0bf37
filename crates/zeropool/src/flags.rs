//! The pool's state flags, requests are waiting and the pool is closed, in one word, so that a put needs one load.

use std::sync::atomic::Ordering::SeqCst;

use crate::sync::AtomicU32;

const WAITING: u32 = 1;
const CLOSED: u32 = 2;

#[derive(Debug)]
pub(crate) struct PoolFlags(AtomicU32);

impl PoolFlags {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// No request waits and the pool is open: gets and puts need not look at the queue.
    #[inline]
    pub(crate) fn allows_fast_path(&self) -> bool {
        // `SeqCst`: a put's store to a slot comes before this load, and a waiter's store to this flag before its search
        // of the slots. Weaker orders would allow both to miss the other. On x86-64 the load is a plain one
        self.0.load(SeqCst) == 0
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(SeqCst) & CLOSED != 0
    }

    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, SeqCst);
    }

    /// Called under the queue's lock, so that the flag agrees with the queue.
    pub(crate) fn set_has_waiters(&self, waiting: bool) {
        if waiting {
            self.0.fetch_or(WAITING, SeqCst);
        } else {
            self.0.fetch_and(!WAITING, SeqCst);
        }
    }
}
