//! The runtime: events in, policies asked, what they recommend carried out.

mod arrivals;
mod door;
mod evictions;
mod listen;
mod merge;
mod short;
mod status;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use door::{ask, runtimes};
pub use status::{Events, Let, MemoryUse, PolicyStatus, Status};

use crate::cache::{self, Memory, Prefetcher, Scope, THRESHOLD};
use crate::error::Result;
use crate::source::Want;
use crate::{Answer, EventSource, Limits, Origin, Policies, Policy, Registered, Waker};
use door::Door;
use evictions::Evictions;
use listen::Counters;
use short::Short;

/// How a [`Runtime`] works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose memory is looked at.
    pub scope: Scope,
    /// Share of the memory that may be used above which nothing more is brought; policies are asked what to let go a
    /// little before. `None`: whatever they recommend is brought.
    pub threshold: Option<f64>,
    /// How often memory is looked at, and events that wait for company are heard; five times as often while it is
    /// short, when policies are asked each time what to let go, besides at every miss.
    pub every: Duration,
    /// How bytes are brought. Its `room` is set by the runtime.
    pub prefetch: cache::Options,
    /// What a policy may take.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scope: Scope::Own,
            threshold: Some(THRESHOLD),
            every: Duration::from_millis(100),
            prefetch: cache::Options::default(),
            limits: Limits::default(),
        }
    }
}

/// Policies, and what carries out their recommendations. It does something while it is [run](Self::run).
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use anamnesis_ppc::{Eager, Event, Kind, Namespace, Runtime, runtime::Options, source::Fake};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 100_000])?;
/// let runtime = Runtime::new(Options::default())?;
/// runtime.reg_policy(dir.path(), "eager", Box::new(Eager::default()), "")?;
///
/// // in place of the kernel's events: somebody missed the first page
/// let (source, hand) = Fake::new()?;
/// let namespace = Namespace::scan(dir.path())?;
/// let inode = namespace.entries()[0].inode;
/// hand.push(&[Event { kind: Kind::Miss, inode, start: 0, len: 4096, pid: 1, tid: 1, time: 0 }]);
/// hand.end();
/// runtime.run(Box::new(source), &AtomicBool::new(false))?;
/// assert_eq!(runtime.status().events.misses, 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    policies: Policies,
    prefetcher: Arc<Prefetcher>,
    evictions: Arc<Evictions>,
    short: Option<Arc<Short>>,
    memory: Memory,
    every: Duration,
    counters: Counters,
    /// By directory, what policies are called.
    names: Mutex<Vec<(PathBuf, String)>>,
    /// Of the source that is listened to.
    waker: Mutex<Option<Waker>>,
    /// Which registrations' files that source listens to, by their [changes](Policies::changes).
    watched: Mutex<Option<u64>>,
    began: Instant,
}

impl Runtime {
    /// A runtime without policies.
    ///
    /// # Errors
    ///
    /// Options that cannot be meant; no such cgroup; the system's errors.
    pub fn new(options: Options) -> Result<Self> {
        let Options {
            scope,
            threshold,
            every,
            prefetch,
            limits,
        } = options;
        let memory = Memory::of(&scope)?;
        let short = threshold.map(|threshold| Arc::new(Short::new(memory.clone(), threshold)));
        let room = short
            .clone()
            .map(|short| -> cache::Room { Arc::new(move || short.room()) });
        let prefetcher = Arc::new(Prefetcher::new(cache::Options { room, ..prefetch })?);
        let evictions = Arc::new(Evictions::new()?);
        let (brings, lets) = (Arc::clone(&prefetcher), Arc::clone(&evictions));
        // none would be: not known
        let most = memory.used()?.below(threshold.unwrap_or(1.0)).max(1);
        let policies = Policies::new(most, limits, move |origin: &Origin, answer| match answer {
            Answer::Prefetch(prefetch) => {
                if let Err(error) = brings.submit(&origin.namespace, &prefetch) {
                    tracing::warn!("{error}");
                }
            }
            Answer::Evict(ios) => lets.put(&origin.namespace, ios),
            Answer::Lost(_) => brings.interrupt_namespace(origin.namespace.root()),
        });
        Ok(Self {
            policies,
            prefetcher,
            evictions,
            short,
            memory,
            every,
            counters: Counters::default(),
            names: Mutex::default(),
            waker: Mutex::default(),
            watched: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// Registers a policy for a directory, in place of the one that it has. `name` is for people.
    ///
    /// # Errors
    ///
    /// As [`Policies::reg_policy`].
    pub fn reg_policy(
        &self,
        path: &Path,
        name: &str,
        policy: Box<dyn Policy>,
        config: &str,
    ) -> Result<Arc<Registered>> {
        let registered = self.policies.reg_policy(path, policy, config)?;
        let root = registered.origin().namespace.root().to_owned();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|(path, _)| *path != root);
        names.push((root, name.to_owned()));
        drop(names);
        self.wake();
        Ok(registered)
    }

    /// Ends the registration of a directory's policy, and what is being brought for it.
    ///
    /// # Errors
    ///
    /// As [`Policies::rm_policy`].
    pub fn rm_policy(&self, path: &Path) -> Result<()> {
        let removed = self.policies.rm_policy(path);
        self.wake();
        // one that was lost was interrupted then
        let removed = removed?;
        let root = removed.origin().namespace.root();
        self.prefetcher.interrupt_namespace(root);
        self.names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(path, _)| path != root);
        Ok(())
    }

    /// Ends the wait for events: there are other files to listen to.
    fn wake(&self) {
        self.waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(Waker::wake);
    }

    /// The policies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Says to all policies that the service is about to start.
    pub fn start(&self) {
        self.policies
            .all()
            .iter()
            .for_each(|registered| registered.policy().start());
    }

    /// What the policies want to be told beside misses: see [`source::for_policies`](crate::source::for_policies).
    pub fn wanted(&self) -> Want {
        let wants: Vec<_> = self
            .policies
            .all()
            .iter()
            .map(|registered| registered.policy().wants())
            .collect();
        match () {
            () if wants.iter().any(|wants| wants.recording) => Want::Recording,
            () if wants.iter().any(|wants| wants.touch) => Want::Accesses,
            () => Want::Misses,
        }
    }

    /// Listens until `stop` is set or the source ends, telling policies what happens. Others can [`ask`] meanwhile how
    /// it goes. Registering and removing goes on from other threads; files that come into a directory become those of its
    /// policy once they are written.
    ///
    /// # Errors
    ///
    /// The source's; the system's.
    pub fn run(&self, source: Box<dyn EventSource>, stop: &AtomicBool) -> Result<()> {
        std::thread::scope(|scope| {
            let _follows = arrivals::follow(scope, &self.policies, || self.wake())?;
            self.listen(source, stop)
        })
    }

    /// Opens the door at which others [`ask`] how it goes, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// The system's; another runtime of this process has it open.
    pub fn open_door(self: &Arc<Self>) -> Result<impl Drop + use<>> {
        let runtime = Arc::downgrade(self);
        let answer = move || {
            runtime
                .upgrade()
                .map(|runtime| runtime.status().document().to_string())
                .unwrap_or_default()
        };
        Ok(Door::open(answer)?)
    }

    /// What it did so far.
    pub fn status(&self) -> Status {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.counters;
        let (source, blind) = *counters
            .source
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let names = self
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let policies = self
            .policies
            .all()
            .iter()
            .map(|at| PolicyStatus::of(at, &names))
            .collect();
        let usage = self.memory.used().ok();
        let (lists, bytes) = self.evictions.done();
        let evict = Let { lists, bytes };
        Status {
            pid: std::process::id(),
            running: self.began.elapsed().as_secs_f64(),
            source,
            blind,
            events: Events {
                told: count(&counters.told),
                lost: count(&counters.lost),
                outside: count(&counters.outside),
                opens: count(&counters.opens),
                misses: count(&counters.misses),
                missed_bytes: count(&counters.missed),
                touches: count(&counters.touches),
                touched_bytes: count(&counters.touched),
                longest_lag: count(&counters.lag),
            },
            policies,
            prefetch: self.prefetcher.progress(),
            evict,
            memory: MemoryUse {
                used: usage.as_ref().map_or(0, |usage| usage.used),
                limit: usage.map_or(0, |usage| usage.limit),
                short: count(&counters.short),
            },
        }
    }

    /// Who brings, for those who want to wait for it or to hold it up.
    pub fn prefetcher(&self) -> &Prefetcher {
        &self.prefetcher
    }
}
