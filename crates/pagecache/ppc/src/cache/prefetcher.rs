//! The threads that read prefetch queues into the page cache.

#[cfg(all(test, shuttle))]
mod interleavings;
mod worker;

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::bandwidth::BandwidthLimit;
use crate::cache::descriptor_cache::read_ahead;
use crate::cache::options::PrefetchOptions;
use crate::cache::progress::{PrefetchCounters, PrefetchProgress, count};
use crate::cache::queues::PrefetchQueues;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, ThreadHandle, thread};
use crate::{Namespace, PrefetchRequest};

/// Limit on the queues that have an unfinished list.
const MAX_QUEUES: usize = 1024;

/// Reads lists of file ranges into the page cache, in their order, on threads of its own.
///
/// A list belongs to a queue of a namespace; a newer list for the queue replaces the older one. Queues are served in
/// turn, one piece each. Cached bytes are not read again. Dropping the prefetcher ends its threads after the current
/// reads.
///
/// # Read-ahead
///
/// The kernel's read-ahead stays enabled: without it (`POSIX_FADV_RANDOM`) the page cache is filled with single pages
/// instead of large folios, which makes every later fault and eviction slower. So up to twice the device's
/// `read_ahead_kb` beyond a range may be read too, and the device may still be reading ahead after an interrupt. With
/// several threads, a read may also wait for the read-ahead of another one.
/// [`PrefetchMethod::Populate`](super::PrefetchMethod::Populate) avoids both.
///
/// # Example
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use anamnesis_ppc::{FileEntry, Namespace, PrefetchRequest, cache::{PrefetchOptions, Prefetcher}};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Arc::new(Namespace::scan(dir.path())?);
/// let prefetcher = Prefetcher::new(PrefetchOptions { bandwidth: Some(1 << 30), ..PrefetchOptions::default() })?;
/// let ranges = namespace.entries().iter().map(FileEntry::whole).collect::<Vec<_>>().into();
/// prefetcher.submit(&namespace, &PrefetchRequest { ranges, queue: 0 })?;
/// assert!(prefetcher.wait(Duration::from_secs(10)));
/// assert_eq!(prefetcher.progress().errors, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Prefetcher {
    shared: Arc<PrefetcherShared>,
    threads: Vec<ThreadHandle>,
}

/// State shared by the threads.
#[derive(Debug)]
pub(super) struct PrefetcherShared {
    pub(super) options: PrefetchOptions,
    pub(super) state: Mutex<PrefetcherState>,
    /// Notified when threads may have work, or must stop.
    pub(super) changed: Condvar,
    /// Notified when a claim or a list ends.
    pub(super) quiet: Condvar,
    /// Paused or stopped: threads stop after their current read. A copy of the state that is read without the lock.
    pub(super) halt: AtomicBool,
    pub(super) counters: PrefetchCounters,
    pub(super) bandwidth: BandwidthLimit,
}

#[derive(Debug, Default)]
pub(super) struct PrefetcherState {
    pub(super) queues: PrefetchQueues,
    /// Number of pieces that threads have claimed.
    pub(super) claims: usize,
    /// Their bytes.
    pub(super) claimed_bytes: u64,
    pub(super) paused: bool,
    pub(super) stopped: bool,
}

impl PrefetcherShared {
    pub(super) fn lock(&self) -> MutexGuard<'_, PrefetcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prefetcher {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for options outside of their allowed values; the system's error if a thread cannot be
    /// started.
    pub fn new(options: PrefetchOptions) -> Result<Self> {
        options.check()?;
        let threads = options.threads;
        let shared = Arc::new(PrefetcherShared {
            bandwidth: BandwidthLimit::new(options.bandwidth),
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
            quiet: Condvar::new(),
            halt: AtomicBool::new(false),
            counters: PrefetchCounters::default(),
        });
        // made first: if a thread cannot be started, dropping this ends the ones before it
        let mut prefetcher = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&prefetcher.shared);
            let thread = thread::Builder::new().name(format!("ppc-prefetch-{number}"));
            prefetcher
                .threads
                .push(thread.spawn(move || worker::run(&shared))?);
        }
        Ok(prefetcher)
    }

    /// Sets the list of a queue, which replaces the queue's previous list. A queue is identified by its number and
    /// the root of its namespace. Returns at once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Limit`] if 1024 queues have lists.
    pub fn submit(&self, namespace: &Arc<Namespace>, prefetch: &PrefetchRequest) -> Result<()> {
        let first = prefetch
            .ranges
            .iter()
            .next()
            .and_then(|io| namespace.get(&io.path));
        // before the lock is taken: a file of sysfs is read
        let width = self
            .shared
            .options
            .width(|| first.map_or(0, |entry| read_ahead(entry.inode)));
        let mut state = self.shared.lock();
        if state.queues.len() >= MAX_QUEUES && !state.queues.has(namespace.root(), prefetch.queue) {
            let what = format!(
                "{MAX_QUEUES} queues have unfinished lists, which is the limit; use one queue per worker"
            );
            return Err(Error::new(ErrorKind::Limit(what)).in_file(namespace.root()));
        }
        let interrupted =
            state
                .queues
                .submit(namespace, prefetch.queue, width, prefetch.ranges.clone());
        drop(state);
        // outside of the lock: no thread needs the counters to be in step with the queues
        count(&self.shared.counters.submitted, 1);
        count(&self.shared.counters.interrupts, u64::from(interrupted));
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Cancels the list of a queue of the namespace with this root. Returns at once; see [`quiesce`](Self::quiesce).
    pub fn interrupt(&self, root: &Path, queue: u32) {
        self.cancel(|of, number| of == root && number == queue);
    }

    /// Cancels all lists of the namespace with this root.
    pub fn interrupt_namespace(&self, root: &Path) {
        self.cancel(|of, _| of == root);
    }

    /// Cancels all lists.
    pub fn interrupt_all(&self) {
        self.cancel(|_, _| true);
    }

    fn cancel(&self, which: impl Fn(&Path, u32) -> bool) {
        let ended = self.shared.lock().queues.interrupt(which);
        count(&self.shared.counters.interrupts, ended);
        self.shared.changed.notify_all();
        // lists that end here are waited for as well as reads
        self.shared.quiet.notify_all();
    }

    /// Waits until no read is in progress, and returns how long that took; `None` after `timeout`. After
    /// [`interrupt_all`](Self::interrupt_all) or [`pause`](Self::pause) it takes as long as the slowest current read.
    /// The kernel's read-ahead may still be in progress.
    pub fn quiesce(&self, timeout: Duration) -> Option<Duration> {
        let start = Instant::now();
        self.wait_while(timeout, |state| state.claims > 0)
            .then(|| start.elapsed())
    }

    /// Waits until all lists are finished; `false` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_while(timeout, |state| state.claims > 0 || state.queues.len() > 0)
    }

    fn wait_while(&self, timeout: Duration, which: impl Fn(&PrefetcherState) -> bool) -> bool {
        let state = self.shared.lock();
        let waited = self
            .shared
            .quiet
            .wait_timeout_while(state, timeout, |state| which(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Stops all threads after their current read. The rest of the lists is read after [`resume`](Self::resume). Used
    /// under memory pressure.
    pub fn pause(&self) {
        let mut state = self.shared.lock();
        state.paused = true;
        // under the lock, as in `resume`: of two calls at once, the later one sets both
        self.shared.halt.store(true, SeqCst);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Continues after [`pause`](Self::pause).
    pub fn resume(&self) {
        let mut state = self.shared.lock();
        state.paused = false;
        // a stop is for good: resuming must not undo it
        self.shared.halt.store(state.stopped, SeqCst);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Changes the limit on bytes per second of all threads together, from the next read on; `None`: unlimited.
    pub fn set_bandwidth(&self, bandwidth: Option<u64>) {
        self.shared.bandwidth.set(bandwidth);
        self.shared.changed.notify_all();
    }

    /// Counters, and the progress of unfinished lists.
    pub fn progress(&self) -> PrefetchProgress {
        let state = self.shared.lock();
        let (paused, past_end, queues) = (
            state.paused,
            state.queues.past_end(),
            state.queues.progress(),
        );
        drop(state);
        let mut progress = self.shared.counters.snapshot(paused, queues);
        progress.past_end += past_end;
        progress
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        self.shared.halt.store(true, SeqCst);
        // so that threads that look for work find none
        state.queues.interrupt(|_, _| true);
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // the panic hook has printed a panic of the thread
            let _ = thread.join();
        }
    }
}
