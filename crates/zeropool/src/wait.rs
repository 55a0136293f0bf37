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
        Arc::new(Self { class, state: Mutex::new(State::Waiting(None)), ready: Condvar::default() })
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Hands it over and wakes whoever waits; gives it back if nobody does any more.
    pub(crate) fn deliver(&self, grant: G) -> Option<G> {
        let waker = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Waiting(waker) => {
                    let waker = waker.take();
                    *state = State::Granted(grant);
                    waker
                }
                State::Granted(_) | State::Over => return Some(grant),
            }
        };
        self.ready.notify_all();
        // outside the lock: a waker is a stranger's code
        if let Some(waker) = waker {
            waker.wake();
        }
        None
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
        let mut state = self.state.lock();
        if let Some(grant) = Self::granted(&mut state) {
            return Poll::Ready(grant);
        }
        let old = match &mut *state {
            State::Waiting(old) if !old.as_ref().is_some_and(|old| old.will_wake(waker)) => old.replace(waker.clone()),
            _ => None,
        };
        drop(state);
        drop(old);
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
