//! The queue of waiting requests: strictly first in, first out, blocked threads and futures together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::class::Class;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// One request that waits for a grant of type `G`.
pub(crate) struct Waiter<G> {
    class: Class,
    state: Mutex<WaiterState<G>>,
    ready: Condvar,
}

enum WaiterState<G> {
    /// With the task's waker, if a future waits.
    Waiting(Option<Waker>),
    Granted(G),
    /// The grant was taken, or the request was cancelled.
    Finished,
}

impl<G> Waiter<G> {
    pub(crate) fn new(class: Class) -> Arc<Self> {
        Arc::new(Self {
            class,
            state: Mutex::new(WaiterState::Waiting(None)),
            ready: Condvar::default(),
        })
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Grants the request. Wakes a blocked thread; returns the waker of a future, for [`wake_all`] after the caller's
    /// locks are released. Returns the grant if the request was cancelled.
    pub(crate) fn deliver(&self, grant: G) -> Result<Option<Waker>, G> {
        let mut state = self.state.lock();
        let WaiterState::Waiting(waker) = &mut *state else {
            return Err(grant);
        };
        let waker = waker.take();
        *state = WaiterState::Granted(grant);
        drop(state);
        // after the lock is released, so that the woken thread does not wait for it at once
        self.ready.notify_all();
        Ok(waker)
    }

    /// Blocks this thread until the grant arrives; `None` after the deadline. The caller must then cancel the request.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<G> {
        let mut state = self.state.lock();
        loop {
            if let Some(grant) = Self::take_grant(&mut state) {
                return Some(grant);
            }
            let (relocked, timed_out) = self.ready.wait(state, deadline);
            state = relocked;
            if timed_out {
                // a grant that arrived between the timeout and the lock is taken
                return Self::take_grant(&mut state);
            }
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<G> {
        // cloned and dropped outside the lock: a waker's clone and drop run code of the runtime
        let waker = waker.clone();
        let mut state = self.state.lock();
        if let Some(grant) = Self::take_grant(&mut state) {
            return Poll::Ready(grant);
        }
        let replaced = match &mut *state {
            WaiterState::Waiting(previous) => previous.replace(waker),
            WaiterState::Granted(_) | WaiterState::Finished => Some(waker),
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    fn take_grant(state: &mut MutexGuard<'_, WaiterState<G>>) -> Option<G> {
        match std::mem::replace(&mut **state, WaiterState::Finished) {
            WaiterState::Granted(grant) => Some(grant),
            unchanged => {
                **state = unchanged;
                None
            }
        }
    }

    /// Refuses later grants. Returns one that has arrived already.
    pub(crate) fn cancel(&self) -> Option<G> {
        // the first to replace `Waiting` under the lock decides: either `deliver` finds `Finished` and keeps its grant, or
        // the grant is here and is returned to the caller
        let state = std::mem::replace(&mut *self.state.lock(), WaiterState::Finished);
        match state {
            WaiterState::Granted(grant) => Some(grant),
            WaiterState::Waiting(_) | WaiterState::Finished => None,
        }
    }
}

/// Wakes tasks. Called without locks, as the last step. A panic in a waker is caught, since it must reach neither the other
/// tasks nor the thread that happens to return a buffer; the panic hook has reported it.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

/// The waiting requests, the first at the front.
pub(crate) struct Queue<G>(Mutex<VecDeque<Arc<Waiter<G>>>>);

pub(crate) type QueuedRequests<'q, G> = MutexGuard<'q, VecDeque<Arc<Waiter<G>>>>;

impl<G> Queue<G> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    pub(crate) fn lock(&self) -> QueuedRequests<'_, G> {
        self.0.lock()
    }

    /// Removes a request, wherever it is in the queue.
    pub(crate) fn remove(&self, waiter: &Arc<Waiter<G>>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, waiter));
    }
}
