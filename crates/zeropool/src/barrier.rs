//! An asymmetric memory barrier: the frequent side is a compiler fence, the rare side is `membarrier(2)`, which makes every
//! running thread of the process pass a full barrier.
//!
//! Guarantee: if one thread stores A, passes [`light`] and loads B, and another stores B, passes [`heavy`] and loads A, at
//! least one of them observes the other's store. If the light side came first, everything before it is visible after the
//! heavy side.

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

/// Registers the process for `membarrier` and calls it once. Returns false where the kernel does not have it or a seccomp
/// filter refuses it: [`light`] then guarantees nothing.
pub(crate) fn register() -> bool {
    imp::register() && imp::fence()
}

/// The rare side, after [`register`] returned true. False if the call is refused nevertheless, as after a seccomp filter
/// was installed meanwhile: nothing is then guaranteed.
#[must_use]
pub(crate) fn heavy() -> bool {
    #[cfg(test)]
    if REFUSED.get() {
        return false;
    }
    // the child of a fork inherits the registration
    imp::fence() || (imp::register() && imp::fence())
}

#[cfg(test)]
thread_local! {
    /// Makes [`heavy`] return false on this thread.
    pub(crate) static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
mod imp {
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    pub(super) fn register() -> bool {
        // expedited: interrupts the processors that run this process instead of waiting until each has passed a barrier
        // by itself; private: no other process needs to be fenced
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

/// The model checker explores machines with and without `membarrier`.
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
