//! Who may take from a thread's cells: their owner alone, with plain loads and stores, or everybody, by exchanges.
//!
//! The owner goes in alone as long as nobody asks: it marks itself inside, passes a barrier's light side and looks at the
//! state. Who wants to take from it asks (state), passes the heavy side, and waits until the owner is not inside. By the
//! barrier, either the owner sees that somebody asked and does not go in, or the other sees it inside and waits for it.
//! Then the gate is open until the owner, who has not been robbed for a while, closes it.
//!
//! What this file guarantees, if the owner's methods are called on one thread at a time and those of strangers and
//! [`close`](Gate::close) under one lock: while the closure of [`alone`](Gate::alone) runs no stranger has an open gate,
//! and what it did is visible to strangers who have one later, and the reverse.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Pause};

/// Its owner goes in alone.
const CLOSED: u32 = 0;
/// Somebody wants to go in, and may not yet. The owner goes in no more.
const ASKED: u32 = 1;
/// Everybody exchanges.
const OPEN: u32 = 2;

/// After so many of its own exchanges without being robbed the owner closes the gate. If opening it costs microseconds
/// (`membarrier`) and an exchange nanoseconds, neither side pays much more than twice what it would if it knew what comes.
const PATIENCE: u32 = if cfg!(any(miri, shuttle)) { 2 } else { 1024 };

pub(crate) struct Gate {
    /// Odd while the owner is inside; half of it is how often it came out with something.
    turns: AtomicU64,
    state: AtomicU32,
    patience: AtomicU32,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            turns: AtomicU64::new(0),
            state: AtomicU32::new(OPEN),
            patience: AtomicU32::new(PATIENCE),
        }
    }

    /// How often the owner came out with something, alone.
    pub(crate) fn found(&self) -> u64 {
        self.turns.load(Relaxed) / 2
    }

    /// The owner goes in alone, if the gate is closed.
    #[inline]
    pub(crate) fn alone<R>(
        &self,
        inside: impl FnOnce() -> Option<R>,
    ) -> Result<Option<R>, NotAlone> {
        let turns = self.turns.load(Relaxed);
        self.turns.store(turns + 1, Relaxed);
        barrier::light();
        if self.state.load(Relaxed) != CLOSED {
            // by `Release`, as whoever waits may read this one
            self.turns.store(turns, Release);
            return Err(NotAlone);
        }
        let found = inside();
        self.turns
            .store(if found.is_some() { turns + 2 } else { turns }, Release);
        Ok(found)
    }

    /// Whether nobody has asked before the last [`barrier::light`]. For the owner.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Relaxed) == CLOSED
    }

    /// The owner, which found the gate not closed, is about to exchange. False if it was patient for long enough.
    pub(crate) fn share(&self) -> bool {
        if self.state.load(Relaxed) == ASKED {
            // it is not inside, so whoever asked may come in, also if its barrier failed
            self.state.store(OPEN, Release);
        }
        let patience = self.patience.load(Relaxed);
        // a stranger may set it meanwhile; whose word is lost does not matter
        self.patience.store(patience.saturating_sub(1), Relaxed);
        patience > 0
    }

    /// Whether the owner was patient for long enough.
    pub(crate) fn is_calm(&self) -> bool {
        self.patience.load(Relaxed) == 0
    }

    /// The owner has it for itself from now on, or does not, from now on. Under the lock.
    pub(crate) fn close(&self, closed: bool) {
        self.patience.store(PATIENCE, Relaxed);
        self.state
            .store(if closed { CLOSED } else { OPEN }, Release);
    }

    /// Whether strangers may exchange. Under the lock.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Acquire) == OPEN
    }

    /// A stranger wants to go in. [`barrier::heavy`] is next, and [`open`](Self::open) then. Under the lock.
    pub(crate) fn ask(&self) {
        if self.is_closed() {
            self.state.store(ASKED, Relaxed);
        }
    }

    /// Waits for the owner to come out. Under the lock, after [`ask`](Self::ask) and a successful [`barrier::heavy`].
    pub(crate) fn open(&self) {
        let mut pause = Pause::default();
        // a few instructions, if its owner was not put to sleep among them; it may have opened the gate itself
        while !self.is_open() && !self.turns.load(Acquire).is_multiple_of(2) {
            pause.pause();
        }
        self.state.store(OPEN, Release);
    }

    /// The owner was robbed. Under the lock.
    pub(crate) fn robbed(&self) {
        self.patience.store(PATIENCE, Relaxed);
    }
}

/// Others may be inside.
#[derive(Debug)]
pub(crate) struct NotAlone;
