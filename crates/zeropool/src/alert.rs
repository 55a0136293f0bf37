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

/// Whether the kernel can make all threads of this process pass a barrier, so that those who put need none.
pub(crate) fn can_fence_others() -> bool {
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    {
        use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
        return membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    }
    #[allow(unreachable_code)]
    false
}

/// That barrier. After it, every put that read the alert as it was before is visible here.
pub(crate) fn fence_others() {
    #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
    {
        use rustix::thread::{MembarrierCommand, membarrier};
        let fence = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // registered when the pool was built, and a child of a fork inherits that; should a filter forbid the call
        // since, no processor keeps a store to itself for as long as this
        let again = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && fence();
        if !(fence() || again()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
