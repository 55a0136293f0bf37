//! One word that says whether blocks may go the short way: nobody waits, and the pool is open.

use std::sync::atomic::Ordering::SeqCst;

use crate::sync::AtomicU32;

const WAITING: u32 = 1;
const CLOSED: u32 = 2;

#[derive(Debug)]
pub(crate) struct Alert(AtomicU32);

impl Alert {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(SeqCst) & CLOSED != 0
    }

    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, SeqCst);
    }

    /// Under the queue's lock.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        if waiting {
            self.0.fetch_or(WAITING, SeqCst);
        } else {
            self.0.fetch_and(!WAITING, SeqCst);
        }
    }
}
