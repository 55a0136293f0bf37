//! The thread that lets go of what policies recommend: it may take long, and nobody waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::cache::{Evicted, Evictor};
use crate::error::Result;
use crate::{Ios, Namespace};

/// Lists that wait; what was to go longest ago is given up beyond that: it is asked for again while memory is short.
const WAITING: usize = 256;
/// Namespaces whose evictors are kept, with what they remember.
const EVICTORS: usize = 64;

/// Lists that wait to be let go, and the thread that takes them.
#[derive(Debug)]
pub(super) struct Evictions {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Arc<Namespace>, Ios)>,
    done: Evicted,
    lists: u64,
    stopped: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evictions {
    pub(super) fn new() -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let of = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("ppc-evict".into())
            .spawn(move || work(&of))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Lets go of a list of a namespace, some time.
    pub(super) fn put(&self, namespace: &Arc<Namespace>, ios: Ios) {
        if ios.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        if state.waiting.len() == WAITING {
            state.waiting.pop_front();
        }
        state.waiting.push_back((Arc::clone(namespace), ios));
        drop(state);
        self.shared.changed.notify_one();
    }

    /// How many lists, and what came of them.
    pub(super) fn done(&self) -> (u64, Evicted) {
        let state = self.shared.lock();
        (state.lists, state.done)
    }
}

impl Drop for Evictions {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // one that panicked has said so
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut evictors: Vec<(Arc<Namespace>, Evictor)> = Vec::new();
    loop {
        let mut state = shared.lock();
        let (namespace, ios) = loop {
            if state.stopped {
                return;
            }
            match state.waiting.pop_front() {
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
        let at = evictors
            .iter()
            .position(|(of, _)| Arc::ptr_eq(of, &namespace))
            .unwrap_or_else(|| {
                if evictors.len() == EVICTORS {
                    evictors.remove(0);
                }
                evictors.push((Arc::clone(&namespace), Evictor::new(&namespace)));
                evictors.len() - 1
            });
        let evicted = evictors[at].1.evict(&ios);
        let mut state = shared.lock();
        state.lists += 1;
        state.done += evicted;
    }
}
