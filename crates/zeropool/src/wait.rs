//! The queue of those who wait for room: strictly first in, first out, threads and futures together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::class::Class;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// One request that waits for a `G`.
pub(crate) struct Waiter<G> {
    class: Class,
    state: Mutex<State<G>>,
    ready: Condvar,
}

enum State<G> {
    Waiting(Option<Waker>),
    Granted(G),
    /// It has what it wanted, or wants it no longer.
    Over,
}

impl<G> Waiter<G> {
    pub(crate) fn new(class: Class) -> Arc<Self> {
        Arc::new(Self {
            class,
            state: Mutex::new(State::Waiting(None)),
            ready: Condvar::default(),
        })
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Hands it over and wakes the thread that waits, or returns the waker of the task that does, for [`wake_all`].
    /// Gives the grant back if nobody waits any more.
    pub(crate) fn deliver(&self, grant: G) -> Result<Option<Waker>, G> {
        let mut state = self.state.lock();
        let State::Waiting(waker) = &mut *state else {
            return Err(grant);
        };
        let waker = waker.take();
        *state = State::Granted(grant);
        drop(state);
        self.ready.notify_all();
        Ok(waker)
    }

    /// Blocks this thread; `None` when the deadline has passed. The waiter has to be withdrawn then.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<G> {
        let mut state = self.state.lock();
        loop {
            if let Some(grant) = Self::granted(&mut state) {
                return Some(grant);
            }
            let (again, late) = self.ready.wait(state, deadline);
            state = again;
            if late {
                return Self::granted(&mut state);
            }
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<G> {
        // made and dropped outside the lock: a waker is a stranger's code
        let waker = waker.clone();
        let mut state = self.state.lock();
        if let Some(grant) = Self::granted(&mut state) {
            return Poll::Ready(grant);
        }
        let unused = match &mut *state {
            State::Waiting(old) => old.replace(waker),
            State::Granted(_) | State::Over => Some(waker),
        };
        drop(state);
        drop(unused);
        Poll::Pending
    }

    fn granted(state: &mut MutexGuard<'_, State<G>>) -> Option<G> {
        match std::mem::replace(&mut **state, State::Over) {
            State::Granted(grant) => Some(grant),
            before => {
                **state = before;
                None
            }
        }
    }

    /// Wants nothing any more; returns what had already come.
    pub(crate) fn give_up(&self) -> Option<G> {
        let before = std::mem::replace(&mut *self.state.lock(), State::Over);
        match before {
            State::Granted(grant) => Some(grant),
            State::Waiting(_) | State::Over => None,
        }
    }
}

/// Wakes tasks, under no lock and with nothing left to do. A waker that panics is its runtime's affair, reported by the
/// panic hook: neither the next task nor whoever returns a buffer is to suffer from it.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

/// Those who wait, the first at the front.
pub(crate) struct Queue<G>(Mutex<VecDeque<Arc<Waiter<G>>>>);

pub(crate) type Line<'q, G> = MutexGuard<'q, VecDeque<Arc<Waiter<G>>>>;

impl<G> Queue<G> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    pub(crate) fn lock(&self) -> Line<'_, G> {
        self.0.lock()
    }

    /// Leaves the line, wherever in it.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter<G>>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, waiter));
    }
}
