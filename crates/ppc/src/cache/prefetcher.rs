//! Threads that bring what policies recommend, as far as the machine allows.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cache::bandwidth::Bandwidth;
use crate::cache::files::read_ahead;
use crate::cache::lanes::Lanes;
use crate::cache::options::Options;
use crate::cache::progress::{Counters, Progress, count};
use crate::cache::worker;
use crate::error::{Error, ErrorKind, Result};
use crate::{Namespace, Prefetch};

/// Lanes that have a list at the same time.
const LANES: usize = 1024;

/// Threads that read files into the page cache, in the order of the lists they are given.
///
/// A list belongs to a lane of a namespace; a newer list for the lane ends the older one. Lanes take turns, a piece
/// each. What is in memory already is not read again. Dropped, it ends its threads after the reads that are under way.
///
/// # What more is read
///
/// The kernel's own read-ahead stays switched on, since without it (`POSIX_FADV_RANDOM`) the page cache is filled page
/// by page instead of by large folios, which makes every later fault and eviction dearer. So up to twice the device's
/// `read_ahead_kb` beyond a range may be read too, and the device may be busy with that, for as long as it takes, after
/// an interrupt; with several threads, a read may also wait for what was read ahead for another. Where that is too
/// much, there is [`Fill::Populate`](super::Fill::Populate).
///
/// # Example
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use anamnesis_ppc::{Entry, Namespace, Prefetch, cache::{Options, Prefetcher}};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Arc::new(Namespace::scan(dir.path())?);
/// let prefetcher = Prefetcher::new(Options { bandwidth: Some(1 << 30), ..Options::default() })?;
/// let ios = namespace.entries().iter().map(Entry::whole).collect::<Vec<_>>().into();
/// prefetcher.submit(&namespace, &Prefetch { ios, lane: 0 })?;
/// assert!(prefetcher.wait(Duration::from_secs(10)));
/// assert_eq!(prefetcher.progress().errors, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Prefetcher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    /// There is work, or there shall be none.
    pub(super) changed: Condvar,
    /// A thread gave its piece back.
    pub(super) quiet: Condvar,
    /// Pieces are to be given back: paused or stopped.
    pub(super) halt: AtomicBool,
    pub(super) counters: Counters,
    pub(super) bandwidth: Bandwidth,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) lanes: Lanes,
    /// Pieces that threads have.
    pub(super) held: usize,
    /// Bytes of these.
    pub(super) claimed: u64,
    pub(super) paused: bool,
    pub(super) stopped: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prefetcher {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for options that cannot be meant; the system's error if there can be no thread.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        let threads = options.threads;
        let shared = Arc::new(Shared {
            bandwidth: Bandwidth::new(options.bandwidth),
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
            quiet: Condvar::new(),
            halt: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let mut prefetcher = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&prefetcher.shared);
            let thread = std::thread::Builder::new().name(format!("ppc-prefetch-{number}"));
            prefetcher
                .threads
                .push(thread.spawn(move || worker::run(&shared))?);
        }
        Ok(prefetcher)
    }

    /// Brings a list, instead of what this lane of this namespace (by its root) had before. Returns at once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Limit`] if 1024 lanes have lists.
    pub fn submit(&self, namespace: &Arc<Namespace>, prefetch: &Prefetch) -> Result<()> {
        let first = prefetch
            .ios
            .iter()
            .next()
            .and_then(|io| namespace.get(&io.path));
        let width = self
            .shared
            .options
            .width(|| first.map_or(0, |entry| read_ahead(entry.inode)));
        let mut state = self.shared.lock();
        if state.lanes.len() >= LANES && !state.lanes.has(namespace.root(), prefetch.lane) {
            let what = format!("{LANES} lanes are prefetching; number them by worker");
            return Err(Error::new(ErrorKind::Limit(what)).in_file(namespace.root()));
        }
        let interrupted = state
            .lanes
            .submit(namespace, prefetch.lane, width, prefetch.ios.clone());
        drop(state);
        count(&self.shared.counters.submitted, 1);
        count(&self.shared.counters.interrupts, u64::from(interrupted));
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Ends the list of a lane of the namespace with this root. Returns at once; see [`quiesce`](Self::quiesce).
    pub fn interrupt(&self, root: &Path, lane: u32) {
        self.end(|of, number| of == root && number == lane);
    }

    /// Ends all lists of the namespace with this root.
    pub fn interrupt_namespace(&self, root: &Path) {
        self.end(|of, _| of == root);
    }

    /// Ends all lists.
    pub fn interrupt_all(&self) {
        self.end(|_, _| true);
    }

    fn end(&self, which: impl Fn(&Path, u32) -> bool) {
        let ended = self.shared.lock().lanes.interrupt(which);
        count(&self.shared.counters.interrupts, ended);
        self.shared.changed.notify_all();
        self.shared.quiet.notify_all();
    }

    /// Waits until no read is under way, and says how long that took; `None` if it had not come to that in `timeout`.
    /// After [`interrupt_all`](Self::interrupt_all) or [`pause`](Self::pause) that takes as long as the longest of one
    /// read of each thread. The kernel's read-ahead is not waited for.
    pub fn quiesce(&self, timeout: Duration) -> Option<Duration> {
        let start = Instant::now();
        self.wait_while(timeout, |state| state.held > 0)
            .then(|| start.elapsed())
    }

    /// Waits until all lists are done; `false` if they were not in `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_while(timeout, |state| state.held > 0 || state.lanes.len() > 0)
    }

    fn wait_while(&self, timeout: Duration, which: impl Fn(&State) -> bool) -> bool {
        let state = self.shared.lock();
        let waited = self
            .shared
            .quiet
            .wait_timeout_while(state, timeout, |state| which(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Stops reading within one read, and keeps what is left of the lists for [`resume`](Self::resume): memory is short.
    pub fn pause(&self) {
        self.shared.lock().paused = true;
        self.shared.halt.store(true, SeqCst);
        self.shared.changed.notify_all();
    }

    /// Goes on after [`pause`](Self::pause).
    pub fn resume(&self) {
        let mut state = self.shared.lock();
        state.paused = false;
        self.shared.halt.store(state.stopped, SeqCst);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Another bound on bytes per second, all threads together, from the next read on.
    pub fn set_bandwidth(&self, bandwidth: Option<u64>) {
        self.shared.bandwidth.set(bandwidth);
        self.shared.changed.notify_all();
    }

    /// What has been done, and what is left.
    pub fn progress(&self) -> Progress {
        let state = self.shared.lock();
        let (paused, past_end, lanes) =
            (state.paused, state.lanes.past_end(), state.lanes.progress());
        drop(state);
        let mut progress = self.shared.counters.snapshot(paused, lanes);
        progress.past_end += past_end;
        progress
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        self.shared.halt.store(true, SeqCst);
        state.lanes.interrupt(|_, _| true);
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // one that panicked has said so
            let _ = thread.join();
        }
    }
}
