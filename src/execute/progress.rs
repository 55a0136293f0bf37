//! How far a run is, told now and then.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of output that were made.
    pub done: u64,
    /// Bytes of output that will be.
    pub total: u64,
}

/// Bytes of output between two calls of a watcher.
const EVERY: u64 = 4 << 20;

type Callback<'w> = &'w mut (dyn FnMut(Progress) -> ControlFlow<()> + Send);

/// A watcher that several threads may call.
pub(crate) struct Watch<'w> {
    total: u64,
    next: AtomicU64,
    callback: Mutex<Callback<'w>>,
}

impl<'w> Watch<'w> {
    pub(crate) fn new(total: u64, callback: Callback<'w>) -> Self {
        Self {
            total,
            next: AtomicU64::new(0),
            callback: Mutex::new(callback),
        }
    }

    /// Tells that so many bytes are done, unless that was told a moment ago.
    pub(crate) fn tell(&self, done: u64) -> ControlFlow<()> {
        if done < self.next.load(Ordering::Relaxed) {
            ControlFlow::Continue(())
        } else {
            self.call(done, false)
        }
    }

    /// Tells it whatever was told: by who works at or waits for one thing for long.
    pub(crate) fn ask(&self, done: u64) -> ControlFlow<()> {
        self.call(done, true)
    }

    fn call(&self, done: u64, again: bool) -> ControlFlow<()> {
        // who finds it taken goes on: another thread is telling
        let Ok(mut callback) = self.callback.try_lock() else {
            return ControlFlow::Continue(());
        };
        let next = self.next.load(Ordering::Relaxed);
        if done < next && !again {
            return ControlFlow::Continue(());
        }
        // others were faster since this was counted; what was told is not taken back
        let done = done.max(next.saturating_sub(EVERY));
        self.next
            .store(done.saturating_add(EVERY), Ordering::Relaxed);
        callback(Progress {
            done,
            total: self.total,
        })
    }

    pub(crate) fn finish(&self) {
        if let Ok(mut callback) = self.callback.lock() {
            // nothing is left to stop
            let _ = callback(Progress {
                done: self.total,
                total: self.total,
            });
        }
    }
}
