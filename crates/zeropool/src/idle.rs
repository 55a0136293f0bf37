//! Releasing buffers that nothing has requested for a while, on a thread that runs only while there are such buffers.
//!
//! Time is counted in periods. A buffer that is dropped in one period is kept to the end of the next, so that it is free for one
//! to two of them before it is released. The thread counts bytes and knows no buffer: those that were dropped in the period that
//! ends are left in the pool, whichever buffers they are, and [`USES`] times those that were requested in it: a load that takes longer
//! than a period finds the memory of the one before.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicUsize};

/// A pool whose free buffers can be released.
pub(crate) trait Trimmable: Send + Sync + 'static {
    /// Bytes of all free buffers.
    fn free_bytes(&self) -> usize;
    /// Releases free buffers until at most `keep` bytes of them are left.
    fn release_to(self: &Arc<Self>, keep: usize);
    /// Its setting, if buffers are released.
    fn idle(&self) -> Option<&IdleRelease>;
}

/// How many times the bytes that were requested in a period are kept for the next ones: a load of
/// sixteen seconds has its memory to the end where the periods are quarters of a second.
const USES: usize = 64;

/// The setting, and the state of its thread.
#[derive(Debug)]
pub(crate) struct IdleRelease {
    period: Duration,
    keep: usize,
    /// Bytes of the buffers that were dropped in this period.
    recent: AtomicUsize,
    /// Bytes of the free buffers that were requested in this period.
    requested: AtomicUsize,
    /// Whether the thread exists.
    running: AtomicBool,
}

impl IdleRelease {
    pub(crate) fn new(period: Duration, keep: usize) -> Self {
        Self {
            period,
            keep,
            recent: AtomicUsize::new(0),
            requested: AtomicUsize::new(0),
            running: AtomicBool::new(false),
        }
    }

    /// After a buffer of this capacity has become free.
    pub(crate) fn record_put(&self, pool: &Arc<impl Trimmable>, capacity: usize) {
        self.recent.fetch_add(capacity, SeqCst);
        let needs_thread = !self.running.load(SeqCst) && pool.free_bytes() > self.keep;
        if !needs_thread || self.running.swap(true, SeqCst) {
            return;
        }
        // weak, since the thread must not keep the pool after the last handle
        let weak = Arc::downgrade(pool);
        let builder = thread::Builder::new().name("zeropool-release".to_owned());
        if builder.spawn(move || run(&weak)).is_err() {
            // the process can have no more threads: now, instead of never
            self.running.store(false, SeqCst);
            pool.release_to(self.keep);
        }
    }

    /// After a free buffer of this capacity was found for a request.
    pub(crate) fn record_hit(&self, capacity: usize) {
        self.requested.fetch_add(capacity, Relaxed);
    }

    /// At the end of a period. Returns whether the thread has nothing left to do.
    fn end_period(&self, pool: &Arc<impl Trimmable>) -> bool {
        let recent = self.recent.swap(0, SeqCst);
        let requested = self.requested.swap(0, Relaxed).saturating_mul(USES);
        pool.release_to(self.keep.max(recent).max(requested));
        if pool.free_bytes() > self.keep {
            return false;
        }
        self.running.store(false, SeqCst);
        // a put between the two lines above has seen that the thread runs
        pool.free_bytes() <= self.keep || self.running.swap(true, SeqCst)
    }
}

fn run(pool: &Weak<impl Trimmable>) {
    let period = |pool: Arc<_>| Trimmable::idle(&*pool).map(|idle| idle.period);
    loop {
        let Some(period) = pool.upgrade().and_then(period) else {
            return;
        };
        thread::sleep(period);
        let Some(pool) = pool.upgrade() else {
            return;
        };
        if pool.idle().is_none_or(|idle| idle.end_period(&pool)) {
            return;
        }
    }
}
