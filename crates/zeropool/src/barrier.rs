//! A barrier of which one side is nearly free: who does something all the time marks a place in its code, who does
//! something rarely makes all other threads pass a full barrier (`membarrier`).
//!
//! What it is worth: if one thread writes A, passes [`light`] and reads B, and another writes B, passes [`heavy`] and
//! reads A, at least one of them reads what the other wrote. And whatever was done before the `light` that is the earlier
//! of the two is seen after the `heavy`.

use std::sync::atomic::Ordering::SeqCst;

/// The frequent side. No instruction, but the compiler moves nothing across it.
#[inline]
pub(crate) fn light() {
    // both sides are full fences where `membarrier` is modelled; shuttle's memory is sequentially consistent anyway
    #[cfg(miri)]
    std::sync::atomic::fence(SeqCst);
    #[cfg(not(miri))]
    std::sync::atomic::compiler_fence(SeqCst);
}

/// Whether there is a rare side. To be asked once, before any [`light`] counts.
pub(crate) fn has_heavy() -> bool {
    imp::register()
}

/// The rare side. False if the kernel refuses it now: a filter was set up since it was asked.
#[must_use]
pub(crate) fn heavy() -> bool {
    // registered when the pool was built, and a child of a fork inherits that
    imp::fence() || (imp::register() && imp::fence())
}

#[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
mod imp {
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    pub(super) fn register() -> bool {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn fence() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(miri)]
mod imp {
    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn fence() -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        true
    }
}

/// Machines with and without, as the model checker pleases.
#[cfg(shuttle)]
mod imp {
    use shuttle::rand::{Rng, thread_rng};

    pub(super) fn register() -> bool {
        thread_rng().gen_bool(0.75)
    }

    pub(super) fn fence() -> bool {
        true
    }
}

#[cfg(not(any(target_os = "linux", miri, shuttle)))]
mod imp {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn fence() -> bool {
        false
    }
}
