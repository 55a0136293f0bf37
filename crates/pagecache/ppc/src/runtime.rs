//! The runtime: delivers events to policies and carries out their output.
//!
//! [`Runtime::run`] is the event loop. It waits for events, finds the policy that each file belongs to, and queues calls;
//! policies run on threads of their own ([`Supervisor`](crate::Supervisor)). Their output goes to the prefetcher and to
//! the eviction thread. Two more threads rescan directories that changed and serve the status socket.

mod abstract_socket;
mod directory_watch;
mod event_loop;
mod eviction_thread;
mod memory_pressure;
mod peer;
mod policy_change;
mod prefetch_ledger;
mod prometheus;
mod status;
mod status_query;
mod status_socket;
mod timed_ranges;
mod uncached_files;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use policy_change::{ChangeCallback, PolicyChange, change_policies};
pub use prefetch_ledger::PrefetchedBytes;
pub use status::{
    EventCounts, EvictionTotals, MemoryStatus, PolicyStatus, RuntimeStatus, ServiceStatus,
};
pub use status_query::{RunningRuntimes, query_all, query_status};

use crate::cache::{self, MEMORY_THRESHOLD, MemoryMeter, MemoryScope, Prefetcher};
use crate::error::Result;
use crate::host::LibraryPolicy;
use crate::source::{CaptureMode, poll::monotonic_ns};
use crate::{
    EventSource, Policy, PolicyLimits, PolicyOrigin, PolicyOutput, PolicyRegistry, PrefetchRequest,
    Registration, Waker,
};
use event_loop::EventLoopCounters;
use eviction_thread::EvictionThread;
use memory_pressure::PressureMeter;
use prefetch_ledger::PrefetchLedger;
use status_socket::StatusSocket;
use uncached_files::UncachedFiles;

/// How long a status waits for the reports of policies.
const REPORT_TIMEOUT: Duration = Duration::from_millis(100);

/// Options of a [`Runtime`].
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Whose memory usage and limit apply.
    pub scope: MemoryScope,
    /// The fraction of the memory limit above which nothing is prefetched. Evictions are requested from slightly below it.
    /// `None`: prefetch regardless of memory usage, and never request evictions.
    pub threshold: Option<f64>,
    /// Polling interval for memory usage and batched events. One fifth of it while memory is short.
    pub poll_interval: Duration,
    /// Options of the prefetcher. The runtime sets `headroom`.
    pub prefetch: cache::PrefetchOptions,
    /// Limits of every policy.
    pub policy_limits: PolicyLimits,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            scope: MemoryScope::Own,
            threshold: Some(MEMORY_THRESHOLD),
            poll_interval: Duration::from_millis(100),
            prefetch: cache::PrefetchOptions::default(),
            policy_limits: PolicyLimits::default(),
        }
    }
}

/// Connects an event source, the registered policies and the page cache. Active only during [`run`](Self::run).
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use anamnesis_ppc::{EagerPolicy, Event, EventKind, Namespace, Runtime};
/// use anamnesis_ppc::{runtime::RuntimeOptions, source::FakeSource};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 100_000])?;
/// let runtime = Runtime::new(RuntimeOptions::default())?;
/// runtime.register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")?;
///
/// // a fake source instead of the kernel's events: process 1 missed the first page
/// let (source, handle) = FakeSource::new()?;
/// let namespace = Namespace::scan(dir.path())?;
/// let inode = namespace.entries()[0].inode;
/// handle.push(&[Event { kind: EventKind::Miss, inode, start: 0, len: 4096, pid: 1, tid: 1, time: 0 }]);
/// handle.end();
/// runtime.run(Box::new(source), &AtomicBool::new(false))?;
/// assert_eq!(runtime.status().events.misses, 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    policies: PolicyRegistry,
    prefetcher: Arc<Prefetcher>,
    ledger: Arc<PrefetchLedger>,
    evictions: Arc<EvictionThread>,
    uncached: Arc<UncachedFiles>,
    pressure: Option<Arc<PressureMeter>>,
    memory: MemoryMeter,
    poll_interval: Duration,
    counters: EventLoopCounters,
    /// The names of the policies, by directory.
    names: Mutex<Vec<(PathBuf, String)>>,
    /// Wakes the event source of the event loop.
    waker: Mutex<Option<Waker>>,
    /// The [generation](PolicyRegistry::generation) of the registry whose files the event source watches, and its mode.
    watched: Mutex<Option<(u64, CaptureMode)>>,
    began: Instant,
}

impl Runtime {
    /// A runtime without policies.
    ///
    /// # Errors
    ///
    /// An option is invalid, the control group does not exist, or a system call fails.
    pub fn new(options: RuntimeOptions) -> Result<Self> {
        let RuntimeOptions {
            scope,
            threshold,
            poll_interval,
            prefetch,
            policy_limits,
        } = options;
        let memory = MemoryMeter::of(&scope)?;
        let pressure =
            threshold.map(|threshold| Arc::new(PressureMeter::new(memory.clone(), threshold)));
        let headroom = pressure
            .clone()
            .map(|pressure| -> cache::MemoryHeadroom { Arc::new(move |_| pressure.room()) });
        let ledger = Arc::new(PrefetchLedger::default());
        let (counted, on_read) = (Arc::clone(&ledger), prefetch.on_read.clone());
        let prefetcher = Arc::new(Prefetcher::new(cache::PrefetchOptions {
            headroom,
            on_read: Some(Arc::new(move |namespace, path, range| {
                counted.prefetched(namespace.root(), path, range.clone(), monotonic_ns());
                on_read
                    .iter()
                    .for_each(|call| call(namespace, path, range.clone()));
            })),
            ..prefetch
        })?);
        // a thread of its own: an eviction waits for writeback and for processes that map pages, and events must not
        let evictions = Arc::new(EvictionThread::spawn()?);
        // at least 1: policies take 0 for an unknown limit
        let memory_limit = memory
            .usage_without_file()?
            .below(threshold.unwrap_or(1.0))
            .max(1);
        let (prefetches, evicts) = (Arc::clone(&prefetcher), Arc::clone(&evictions));
        let evicted = Arc::clone(&ledger);
        let uncached = Arc::new(UncachedFiles::default());
        let excluded = Arc::clone(&uncached);
        let carry_out = move |origin: &PolicyOrigin, output| match output {
            PolicyOutput::Prefetch(PrefetchRequest { ranges, queue }) => {
                let ranges = excluded.exclude(&origin.namespace, ranges);
                let request = PrefetchRequest { ranges, queue };
                if let Err(error) = prefetches.submit(&origin.namespace, &request) {
                    tracing::warn!("{error}");
                }
            }
            PolicyOutput::Evict(ranges) => {
                let ranges = excluded.exclude(&origin.namespace, ranges);
                // counted at the request: a miss that follows at once must find the bytes released, not wasted
                evicted.evicted(origin.namespace.root(), &ranges);
                evicts.submit(&origin.namespace, ranges);
            }
            // requests of a failed policy are not carried out further: the kernel's own read-ahead applies from here on
            PolicyOutput::Failed(_) => prefetches.interrupt_namespace(origin.namespace.root()),
        };
        Ok(Self {
            policies: PolicyRegistry::new(memory_limit, policy_limits, carry_out),
            prefetcher,
            ledger,
            evictions,
            uncached,
            pressure,
            memory,
            poll_interval,
            counters: EventLoopCounters::default(),
            names: Mutex::default(),
            waker: Mutex::default(),
            watched: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// Registers a policy for a directory and replaces the previous one. `name` appears in the status.
    ///
    /// # Errors
    ///
    /// The errors of [`PolicyRegistry::register`].
    pub fn register(
        &self,
        path: &Path,
        name: &str,
        policy: Box<dyn Policy>,
        config: &str,
    ) -> Result<Arc<Registration>> {
        let registration = self.policies.register(path, policy, config)?;
        let namespace = &registration.origin().namespace;
        let root = namespace.root().to_owned();
        // now, because it opens files: before the service reads them
        self.uncached.forget(&root);
        self.uncached.devices(namespace);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.iter().any(|(path, _)| *path == root) {
            // requests of the replaced policy are not carried out further
            self.prefetcher.interrupt_namespace(&root);
        }
        names.retain(|(path, _)| *path != root);
        self.ledger.forget(&root);
        names.push((root, name.to_owned()));
        // one lock at a time: waking takes another
        drop(names);
        self.wake();
        Ok(registration)
    }

    /// Removes the registration of a directory and interrupts its prefetches.
    ///
    /// # Errors
    ///
    /// The errors of [`PolicyRegistry::unregister`].
    pub fn unregister(&self, path: &Path) -> Result<()> {
        let removed = self.policies.unregister(path);
        self.wake();
        // if the policy failed, its prefetches were interrupted at that time
        let removed = removed?;
        let root = removed.origin().namespace.root();
        self.prefetcher.interrupt_namespace(root);
        self.ledger.forget(root);
        self.names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(path, _)| path != root);
        Ok(())
    }

    /// Ends the current wait of the event loop, so that it looks at once whether it is to stop, and which files it watches.
    pub fn wake(&self) {
        self.waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(Waker::wake);
    }

    /// The registered policies.
    pub fn policies(&self) -> &PolicyRegistry {
        &self.policies
    }

    /// Notifies all policies that the service is about to start ([`Policy::start`]).
    pub fn notify_start(&self) {
        self.policies
            .registrations()
            .iter()
            .for_each(|registration| registration.supervisor().queue_start());
    }

    /// The events that the registered policies need, for [`source::for_policies`](crate::source::for_policies).
    pub fn capture_mode(&self) -> CaptureMode {
        let interests: Vec<_> = self
            .policies
            .registrations()
            .iter()
            .map(|registration| registration.supervisor().interests())
            .collect();
        // the most demanding mode of all policies, since one source serves them all
        if interests.iter().any(|interests| interests.recording) {
            CaptureMode::Recording
        } else if interests.iter().any(|interests| interests.touch) {
            CaptureMode::Accesses
        } else {
            CaptureMode::Misses
        }
    }

    /// Runs the event loop until `stop` is set, which it looks at after [`wake`](Self::wake) and every
    /// [`poll_interval`](RuntimeOptions::poll_interval), or until the source ends. Policies can be registered and unregistered from other
    /// threads meanwhile. Directories are rescanned when files are created or removed in them.
    ///
    /// # Errors
    ///
    /// The event source fails, or a thread cannot be started.
    pub fn run(&self, source: Box<dyn EventSource>, stop: &AtomicBool) -> Result<()> {
        std::thread::scope(|scope| {
            // dropped when the event loop ends, before the scope waits for the thread
            let _watch = directory_watch::spawn(scope, &self.policies, || self.wake())?;
            self.event_loop(source, stop)
        })
    }

    /// Serves [`query_status`] on a socket until the returned value is dropped, to this process's user and to root.
    ///
    /// # Errors
    ///
    /// The socket cannot be bound, as when another runtime of this process serves its status. If another process has bound
    /// its name, a random one is bound instead, with a warning.
    pub fn serve_status(self: &Arc<Self>) -> Result<impl Drop + use<>> {
        self.bind_socket(None)
    }

    /// Serves the status like [`serve_status`](Self::serve_status), and has changes of policies that other processes request
    /// ([`change_policies`]) made by `change`. They are accepted from root, and from this process's user unless this process
    /// has capabilities. The returned value waits for a change in progress when it is dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`serve_status`](Self::serve_status).
    pub fn serve_changes(self: &Arc<Self>, change: ChangeCallback) -> Result<impl Drop + use<>> {
        self.bind_socket(Some(change))
    }

    fn bind_socket(self: &Arc<Self>, change: Option<ChangeCallback>) -> Result<StatusSocket> {
        // weak, so that a runtime that serves its status is still dropped with its last owner
        let runtime = Arc::downgrade(self);
        let document = move || {
            runtime
                .upgrade()
                .map(|runtime| runtime.status().document().to_string())
                .unwrap_or_default()
        };
        Ok(StatusSocket::bind(document, change)?)
    }

    /// The current counters. Waits for a tenth of a second at most for what policies [report](Policy::report); of one that is busy
    /// for longer it has the last report.
    pub fn status(&self) -> RuntimeStatus {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.counters;
        let (source, limitations) = *counters
            .source
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let names = self
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let registrations = self.policies.registrations();
        // from all at once, so that many that are busy are waited for together
        let reports_until = Instant::now() + REPORT_TIMEOUT;
        registrations
            .iter()
            .for_each(|registration| registration.supervisor().request_report());
        let policies = registrations
            .iter()
            .map(|registration| {
                let left = reports_until.saturating_duration_since(Instant::now());
                let reports = registration.supervisor().report(left);
                PolicyStatus::of(registration, &names, reports, &self.ledger)
            })
            .collect();
        // the share of files costs the kernel a sum over all cores, which a status is not worth
        let usage = self.memory.usage_without_file().ok();
        let (lists, bytes) = self.evictions.totals();
        let evict = EvictionTotals { lists, bytes };
        RuntimeStatus {
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            source,
            limitations,
            libraries_unavailable: LibraryPolicy::UNAVAILABLE,
            events: EventCounts {
                received: count(&counters.received),
                lost: count(&counters.lost),
                unmatched: count(&counters.unmatched),
                opens: count(&counters.opens),
                misses: count(&counters.misses),
                missed_bytes: count(&counters.missed_bytes),
                touches: count(&counters.touches),
                touched_bytes: count(&counters.touched_bytes),
                max_lag_ns: count(&counters.max_lag_ns),
            },
            policies,
            prefetch: self.prefetcher.progress(),
            evict,
            memory: MemoryStatus {
                used: usage.as_ref().map_or(0, |usage| usage.used),
                limit: usage.map_or(0, |usage| usage.limit),
                pressure_polls: count(&counters.pressure_polls),
            },
        }
    }

    /// The prefetcher, for waiting for its completion or interrupting it.
    pub fn prefetcher(&self) -> &Prefetcher {
        &self.prefetcher
    }
}
