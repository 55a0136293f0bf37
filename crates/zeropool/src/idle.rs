//! Releasing buffers that nothing has requested for a while, on a thread that runs only while there are such buffers.
//!
//! Time is counted in periods. A buffer that is dropped in one period is kept to the end of the next, so that it is free for one
//! to two of them before it is released. The thread counts bytes and knows no buffer: those that were dropped in the period that
//! ends are left in the pool, whichever buffers they are.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::engine::Engine;
use crate::sync::{AtomicBool, AtomicUsize};

/// The setting, and the state of its thread.
#[derive(Debug)]
pub(crate) struct IdleRelease {
    period: Duration,
    keep: usize,
    /// Bytes of the buffers that were dropped in this period.
    recent: AtomicUsize,
    /// Whether the thread exists.
    running: AtomicBool,
}

impl IdleRelease {
    pub(crate) fn new(period: Duration, keep: usize) -> Self {
        Self {
            period,
            keep,
            recent: AtomicUsize::new(0),
            running: AtomicBool::new(false),
        }
    }

    /// After a buffer of this capacity has become free.
    pub(crate) fn record_put(&self, engine: &Arc<Engine>, capacity: usize) {
        self.recent.fetch_add(capacity, SeqCst);
        let needs_thread = !self.running.load(SeqCst) && engine.free() > self.keep;
        if !needs_thread || self.running.swap(true, SeqCst) {
            return;
        }
        // weak, since the thread must not keep the engine after the last handle
        let weak = Arc::downgrade(engine);
        let builder = thread::Builder::new().name("zeropool-release".to_owned());
        if builder.spawn(move || run(&weak)).is_err() {
            // the process can have no more threads: now, instead of never
            self.running.store(false, SeqCst);
            engine.trim_to(self.keep);
        }
    }

    /// At the end of a period. Returns whether the thread has nothing left to do.
    fn end_period(&self, engine: &Arc<Engine>) -> bool {
        let recent = self.recent.swap(0, SeqCst);
        engine.trim_to(self.keep.max(recent));
        if engine.free() > self.keep {
            return false;
        }
        self.running.store(false, SeqCst);
        // a put between the two lines above has seen that the thread runs
        engine.free() <= self.keep || self.running.swap(true, SeqCst)
    }
}

fn run(engine: &Weak<Engine>) {
    loop {
        let Some(period) = engine.upgrade().and_then(|engine| engine.idle_period()) else {
            return;
        };
        thread::sleep(period);
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let ended = engine.settings.idle.as_ref();
        if ended.is_none_or(|idle| idle.end_period(&engine)) {
            return;
        }
    }
}

impl Engine {
    fn idle_period(&self) -> Option<Duration> {
        self.settings.idle.as_ref().map(|idle| idle.period)
    }
}
