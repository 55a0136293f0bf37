//! Evicts the ranges that policies return, on a thread of its own: an eviction may take long, and neither the event loop
//! nor a policy waits for it.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crate::cache::{Evicted, Evictor};
use crate::error::Result;
use crate::sync::{Condvar, Mutex, MutexGuard, ThreadHandle, thread};
use crate::{Namespace, RangeList};

/// Maximum number of queued lists. Beyond it the oldest is dropped: while memory is short, policies return its ranges
/// again.
const MAX_QUEUED: usize = 256;
/// For how many namespaces an evictor and its state are kept.
const MAX_EVICTORS: usize = 64;

/// The thread and its queue. Dropping it discards queued lists and waits for the eviction in progress.
#[derive(Debug)]
pub(super) struct EvictionThread {
    shared: Arc<EvictionShared>,
    thread: Option<ThreadHandle>,
}

#[derive(Debug, Default)]
struct EvictionShared {
    state: Mutex<EvictionQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EvictionQueue {
    queued: VecDeque<(Arc<Namespace>, RangeList)>,
    evicted: Evicted,
    lists: u64,
    stopped: bool,
}

impl EvictionShared {
    fn lock(&self) -> MutexGuard<'_, EvictionQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EvictionThread {
    pub(super) fn spawn() -> Result<Self> {
        let shared = Arc::new(EvictionShared::default());
        let worker = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ppc-evict".into())
            .spawn(move || run(&worker))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Queues the eviction of a list of ranges.
    pub(super) fn submit(&self, namespace: &Arc<Namespace>, ranges: RangeList) {
        if ranges.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        if state.queued.len() == MAX_QUEUED {
            state.queued.pop_front();
        }
        state.queued.push_back((Arc::clone(namespace), ranges));
        drop(state);
        self.shared.changed.notify_one();
    }

    /// The number of processed lists, and the sum of their results.
    pub(super) fn totals(&self) -> (u64, Evicted) {
        let state = self.shared.lock();
        (state.lists, state.evicted)
    }
}

impl Drop for EvictionThread {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // if the thread panicked, the panic hook has reported it
            let _ = thread.join();
        }
    }
}

fn run(shared: &EvictionShared) {
    let mut evictors: Vec<(Arc<Namespace>, Evictor)> = Vec::new();
    loop {
        let mut state = shared.lock();
        let (namespace, ranges) = loop {
            if state.stopped {
                return;
            }
            match state.queued.pop_front() {
                Some(next) => break next,
                None => {
                    state = shared
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        drop(state);
        let index = evictors
            .iter()
            .position(|(of, _)| Arc::ptr_eq(of, &namespace))
            .unwrap_or_else(|| {
                if evictors.len() == MAX_EVICTORS {
                    // the oldest snapshot: after a rescan, evictions come with a new one
                    evictors.remove(0);
                }
                evictors.push((Arc::clone(&namespace), Evictor::new(&namespace)));
                evictors.len() - 1
            });
        // without the lock: lists are queued meanwhile
        let evicted = evictors[index].1.evict(&ranges);
        let mut state = shared.lock();
        state.lists += 1;
        state.evicted += evicted;
    }
}
