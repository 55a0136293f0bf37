//! A lock that is biased to one thread: its owner enters with plain loads and stores until another thread revokes that.
//!
//! To enter, the owner stores an odd `epoch`, passes [`barrier::light`] and loads `state`. To revoke, another thread stores
//! `REVOKING`, passes [`barrier::heavy`] and waits until `epoch` is even. The barrier guarantees that at least one of the two
//! observes the other's store, so they never both proceed. The state is then `SHARED` until the bias is set again, after
//! [`REBIAS_AFTER`] accesses of the owner without one from another thread.
//!
//! Guarantee, if the owner's methods are called on one thread at a time, and the other threads' methods and
//! [`set_biased`](BiasedLock::set_biased) under one mutex: while the closure of [`try_owner`](BiasedLock::try_owner) runs,
//! no other thread observes `SHARED` from [`is_shared`](BiasedLock::is_shared). The effects of the closure are visible to a
//! thread that observes `SHARED` later, and the reverse. `tests/interleavings/biased_lock.rs` explores this file itself with
//! loom.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Pause};

/// The owner enters without locked instructions.
const BIASED: u32 = 0;
/// Another thread waits for the owner to leave; the owner does not enter any more.
const REVOKING: u32 = 1;
/// The owner and other threads use atomic exchanges.
const SHARED: u32 = 2;

/// Shared accesses of the owner, without one from another thread, after which the bias is set again. Chosen, not measured:
/// revoking costs microseconds (`membarrier`) and an exchange nanoseconds, so at 1024 the exchanges before and the
/// revocation after cost about the same, and neither pattern pays more than about twice its optimum (experiment 15).
const REBIAS_AFTER: u32 = if cfg!(any(miri, shuttle)) { 2 } else { 1024 };

pub(crate) struct BiasedLock {
    /// Odd while the owner is inside; half of it is the number of its accesses that found something.
    epoch: AtomicU64,
    state: AtomicU32,
    until_rebias: AtomicU32,
}

impl BiasedLock {
    pub(crate) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            state: AtomicU32::new(SHARED),
            until_rebias: AtomicU32::new(REBIAS_AFTER),
        }
    }

    /// Accesses of the owner under the bias that found something.
    pub(crate) fn owner_hits(&self) -> u64 {
        self.epoch.load(Relaxed) / 2
    }

    /// Runs `inside` if the lock is biased. For the owner.
    #[inline]
    pub(crate) fn try_owner<R>(
        &self,
        inside: impl FnOnce() -> Option<R>,
    ) -> Result<Option<R>, NotBiased> {
        // only the owner writes `epoch`, so it reads its own last value
        let epoch = self.epoch.load(Relaxed);
        // no ordering of its own: `light` below and the `heavy` of a revocation order this store before the load of
        // `state`
        self.epoch.store(epoch + 1, Relaxed);
        barrier::light();
        // `Relaxed` is enough for what other threads took earlier: only the owner's thread sets the bias, under the
        // mutex under which they took
        if self.state.load(Relaxed) != BIASED {
            // `Release`: a revoking thread may observe this store and continue
            self.epoch.store(epoch, Release);
            return Err(NotBiased);
        }
        let found = inside();
        self.epoch
            // `Release`: a thread that reads the even value has the slots as the closure left them. One store ends the
            // section and counts the hit, which a counter of its own would take a second one for
            .store(if found.is_some() { epoch + 2 } else { epoch }, Release);
        Ok(found)
    }

    /// Whether no revocation was requested before the last [`barrier::light`]. For the owner.
    #[inline]
    pub(crate) fn is_biased(&self) -> bool {
        self.state.load(Relaxed) == BIASED
    }

    /// Changes `REVOKING` to `SHARED`. For the owner, outside its critical section: so the revocation is complete, even if
    /// the other thread's `membarrier` was refused.
    pub(crate) fn complete_revocation(&self) {
        if self.state.load(Relaxed) == REVOKING {
            // only the owner sets the bias, so no newer state is overwritten but `SHARED`
            self.state.store(SHARED, Release);
        }
    }

    /// Notes that the owner is about to use an exchange. False when the bias is due to be set again.
    pub(crate) fn note_shared_access(&self) -> bool {
        self.complete_revocation();
        let until_rebias = self.until_rebias.load(Relaxed);
        // another thread may reset it meanwhile; a lost update only shifts when the bias returns
        self.until_rebias
            .store(until_rebias.saturating_sub(1), Relaxed);
        until_rebias > 0
    }

    /// Whether the bias is due to be set again. For the owner.
    pub(crate) fn may_rebias(&self) -> bool {
        self.until_rebias.load(Relaxed) == 0
    }

    /// Sets or clears the bias while the owner is outside. Under the mutex.
    pub(crate) fn set_biased(&self, biased: bool) {
        self.until_rebias.store(REBIAS_AFTER, Relaxed);
        self.state
            .store(if biased { BIASED } else { SHARED }, Release);
    }

    /// Whether other threads may use exchanges. Under the mutex.
    pub(crate) fn is_shared(&self) -> bool {
        // `Acquire`: the owner may have set `SHARED` itself, without the mutex, after its last critical section
        self.state.load(Acquire) == SHARED
    }

    /// Begins a revocation. [`barrier::heavy`] must follow, then
    /// [`finish_revocation`](Self::finish_revocation). Under the mutex.
    pub(crate) fn request_revocation(&self) {
        if self.is_biased() {
            // cannot overwrite a newer state: only the owner sets `BIASED`, under the same mutex, and outside of it the
            // owner changes `REVOKING` alone. `heavy` orders the store before the load of `epoch`
            self.state.store(REVOKING, Relaxed);
        }
    }

    /// Waits until the owner is outside. Under the mutex, after a successful [`barrier::heavy`].
    pub(crate) fn finish_revocation(&self) {
        let mut pause = Pause::default();
        // a few instructions, unless the owner was preempted; the owner may have set `SHARED` itself
        while !self.is_shared() && !self.epoch.load(Acquire).is_multiple_of(2) {
            pause.pause();
        }
        self.state.store(SHARED, Release);
    }

    /// Another thread took something, so the bias does not pay yet. Under the mutex.
    pub(crate) fn note_remote_take(&self) {
        self.until_rebias.store(REBIAS_AFTER, Relaxed);
    }
}

/// The lock is not biased to its owner now.
#[derive(Debug)]
pub(crate) struct NotBiased;
