//! Runs a policy on a thread of its own, enforces deadlines and validates its output.
//!
//! The event loop never waits for a policy: it puts calls into a bounded queue, and the policy's thread takes them from
//! there. A second thread watches the deadline of the call in progress. A policy that fails is deregistered, which has
//! no effect on other policies.

pub(crate) mod call_clock;
mod call_queue;
#[cfg(all(test, shuttle))]
mod interleavings;
mod limits;
mod policy_thread;
mod validate;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use call_clock::{CallClock, ExceededLimit};
use call_queue::{CallQueue, QueuedCall};
pub(crate) use limits::PolicyCall;
pub use limits::PolicyLimits;

use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::{
    Error, ErrorKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PrefetchRequest,
    RangeList, Result, ServiceReport,
};

/// How long a shutdown waits beyond the deadlines for the policy's thread to end. That thread also ends the host process
/// of a failed policy.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Output of a supervised policy.
#[derive(Clone, Debug)]
pub enum PolicyOutput {
    /// Ranges to prefetch, validated.
    Prefetch(PrefetchRequest),
    /// Ranges to evict, validated.
    Evict(RangeList),
    /// The policy failed and is deregistered. Always the last output.
    Failed(Arc<Error>),
}

/// Counters of a supervised policy.
#[derive(Clone, Debug, Default)]
pub struct SupervisorStatus {
    /// Calls that returned.
    pub calls: u64,
    /// Calls in the queue.
    pub queued: usize,
    /// Calls that were merged with, or replaced by, another call in the queue.
    pub merged: u64,
    /// Calls that were dropped because the queue was full.
    pub dropped: u64,
    /// Duration of the longest call in nanoseconds.
    pub longest_call_ns: u64,
    /// Why the policy was deregistered, if it failed.
    pub failure: Option<Arc<Error>>,
}

type OutputCallback = Box<dyn FnMut(PolicyOutput) + Send>;

/// How long a call that exceeded its deadline may go on before the policy is deregistered: it may be printing the backtrace of a
/// panic, which is then the reason.
const PANIC_TIMEOUT: Duration = Duration::from_secs(1);

/// A call in progress.
#[derive(Clone, Copy)]
struct ActiveCall {
    call: PolicyCall,
    clock: CallClock,
    /// Distinguishes it from later calls.
    number: u64,
}

struct SupervisorState {
    queue: CallQueue,
    active: Option<ActiveCall>,
    /// Number of calls that have begun.
    begun: u64,
    /// The file with the processor time of the policy's thread; empty before it runs.
    schedstat: PathBuf,
    /// When the watchdog wakes up by itself; `None` while it sleeps until it is notified.
    watchdog_wakes: Option<Instant>,
    /// The result of `init`: the policy's interests, refreshed after each call.
    ready: Option<Result<Interests, String>>,
    /// The last report of the policy.
    report: Vec<ServiceReport>,
    /// Whether a newer report is requested.
    report_requested: bool,
    /// A new state of the directory that the policy has not received yet.
    new_files: Option<Arc<Namespace>>,
    closing: bool,
    /// The policy was dropped, and its thread is ending.
    done: bool,
    calls: u64,
    longest: Duration,
    failure: Option<Arc<Error>>,
    /// The output callback is about to receive the failure, or receives it.
    reporting: bool,
}

impl SupervisorState {
    fn interests(&self) -> Interests {
        self.ready
            .as_ref()
            .and_then(|ready| ready.as_ref().ok().copied())
            .unwrap_or_default()
    }
}

/// The state that the policy's thread, its watchdog and the callers of [`Supervisor`] share. `state` is never held while the
/// policy or the output callback runs.
struct SupervisorShared {
    limits: PolicyLimits,
    state: Mutex<SupervisorState>,
    /// Notifies the policy's thread: there is a call, there are new files, or the registration ends.
    work: Condvar,
    /// Notifies the watchdog and the callers that wait for the policy's initialisation or end.
    progress: Condvar,
    on_output: Mutex<OutputCallback>,
}

impl SupervisorShared {
    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emit(&self, output: PolicyOutput) {
        (self
            .on_output
            .lock()
            .unwrap_or_else(PoisonError::into_inner))(output);
    }

    /// Deregisters the policy. Only the first failure counts: the watchdog and the policy's thread may both report one.
    fn fail(&self, what: String) {
        let error = Arc::new(Error::new(ErrorKind::Policy(what)));
        let mut state = self.lock();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(Arc::clone(&error));
        state.queue.clear();
        let registered = matches!(state.ready, Some(Ok(_)));
        // a shutdown waits for it: the callback is not invoked after that
        state.reporting = registered;
        drop(state);
        self.work.notify_all();
        self.progress.notify_all();
        // a failed initialisation is the result of `spawn` instead
        if registered {
            tracing::warn!("a policy failed and was deregistered: {error}");
            self.emit(PolicyOutput::Failed(error));
            self.lock().reporting = false;
            self.progress.notify_all();
        }
    }

    /// Waits until `condition` holds, for at most `timeout`.
    fn wait(
        &self,
        timeout: Duration,
        condition: impl Fn(&SupervisorState) -> bool,
    ) -> MutexGuard<'_, SupervisorState> {
        let waited = self
            .progress
            .wait_timeout_while(self.lock(), timeout, |state| !condition(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Runs one policy on a thread of its own.
///
/// Calls are queued and never block the caller; output is passed to the callback given to [`spawn`](Self::spawn). A
/// policy that panics, exceeds a deadline, reports an error or returns a range outside of the files of its namespace is
/// deregistered: its queue is cleared, and the callback receives [`PolicyOutput::Failed`].
///
/// A policy that never returns keeps its thread, because a thread cannot be killed. Policies that may hang should be
/// built as shared libraries, which run in a process of their own ([`LibraryPolicy`](crate::host::LibraryPolicy)).
pub struct Supervisor {
    shared: Arc<SupervisorShared>,
}

impl Supervisor {
    /// Starts the threads and waits for the policy's [`init`](Policy::init). `on_output` is called on the policy's thread,
    /// and for [`PolicyOutput::Failed`] possibly on the watchdog's; a callback that blocks delays this policy only.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Policy`]: the policy returned an error, panicked or exceeded the deadline. `on_output` is not called
    /// then. [`ErrorKind::Io`]: a thread could not be started.
    pub fn spawn(
        policy: Box<dyn Policy>,
        context: PolicyContext,
        limits: PolicyLimits,
        on_output: impl FnMut(PolicyOutput) + Send + 'static,
    ) -> Result<Self> {
        let state = SupervisorState {
            queue: CallQueue::new(limits.queued_calls),
            active: None,
            begun: 0,
            schedstat: PathBuf::new(),
            watchdog_wakes: None,
            ready: None,
            report: Vec::new(),
            report_requested: false,
            new_files: None,
            closing: false,
            done: false,
            calls: 0,
            longest: Duration::ZERO,
            failure: None,
            reporting: false,
        };
        let shared = Arc::new(SupervisorShared {
            limits,
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            on_output: Mutex::new(Box::new(on_output)),
        });
        let watched = Arc::clone(&shared);
        thread::Builder::new()
            .name("ppc-watchdog".into())
            // it only waits and compares times
            .stack_size(128 << 10)
            .spawn(move || policy_thread::enforce_deadlines(&watched))?;
        let runner = policy_thread::PolicyThread::new(policy, context, Arc::clone(&shared));
        if let Err(error) = thread::Builder::new()
            .name("ppc-policy".into())
            .spawn(move || runner.run())
        {
            // the watchdog waits for this
            shared.lock().done = true;
            shared.progress.notify_all();
            return Err(error.into());
        }
        // the watchdog ends an `init` that is late; the longer timeout is for a machine that does not schedule the watchdog
        let timeout = limits.longest_init().saturating_mul(4);
        let state = shared.wait(timeout, |state| {
            state.ready.is_some() || state.failure.is_some()
        });
        let failure = state
            .failure
            .as_ref()
            .map(|error| Error::new(ErrorKind::Policy(reason(error))));
        let ready = state.ready.clone();
        drop(state);
        match (failure, ready) {
            (None, Some(Ok(_))) => Ok(Self { shared }),
            (Some(error), _) => Err(error),
            (None, Some(Err(what))) => Err(Error::new(ErrorKind::Policy(what))),
            (None, None) => {
                let what = PolicyCall::Init.timeout_message(ExceededLimit::Elapsed(timeout));
                // ends the policy's thread, should the call ever return
                shared.fail(what.clone());
                Err(Error::new(ErrorKind::Policy(what)))
            }
        }
    }

    /// Which calls the policy needs; calls of other kinds are not queued.
    pub fn interests(&self) -> Interests {
        self.shared.lock().interests()
    }

    /// Passes a new state of the directory to the policy ([`Policy::files_changed`]). Waits until the policy has received
    /// it, failed, or its deadlines have passed.
    pub fn update_files(&self, files: Arc<Namespace>) {
        let mut state = self.shared.lock();
        state.new_files = Some(files);
        drop(state);
        self.shared.work.notify_one();
        let limits = &self.shared.limits;
        // the call in progress, and that one
        let timeout = limits.longest_init().saturating_mul(2);
        let timeout = timeout.saturating_add(SHUTDOWN_GRACE);
        drop(self.shared.wait(timeout, |state| {
            state.new_files.is_none() || state.done || state.failure.is_some()
        }));
    }

    /// Queues a call of [`Policy::start`]. Does not block; nor do the three functions below.
    pub fn queue_start(&self) {
        self.queue(QueuedCall::Start);
    }

    /// Queues a call of [`Policy::prefetch`].
    pub fn queue_prefetch(&self, miss: FileAccess) {
        self.queue(QueuedCall::Prefetch(miss));
    }

    /// Queues a call of [`Policy::evict`].
    pub fn queue_evict(&self, miss: Option<FileAccess>) {
        self.queue(QueuedCall::Evict(miss));
    }

    /// Queues a call of [`Policy::touch`].
    pub fn queue_touch(&self, access: FileAccess) {
        self.queue(QueuedCall::Touch(access));
    }

    /// Requests a report ([`Policy::report`]), which is made after the call in progress.
    pub fn request_report(&self) {
        self.shared.lock().report_requested = true;
        self.shared.work.notify_one();
    }

    /// The last report, after waiting for a requested one for at most `timeout`.
    pub fn report(&self, timeout: Duration) -> Vec<ServiceReport> {
        let state = self.shared.wait(timeout, |state| {
            !state.report_requested || state.done || state.failure.is_some()
        });
        state.report.clone()
    }

    /// Why the policy was deregistered, if it failed.
    pub fn failure(&self) -> Option<Arc<Error>> {
        self.shared.lock().failure.clone()
    }

    /// The counters.
    pub fn status(&self) -> SupervisorStatus {
        let state = self.shared.lock();
        SupervisorStatus {
            calls: state.calls,
            queued: state.queue.len(),
            merged: state.queue.merged,
            dropped: state.queue.dropped,
            longest_call_ns: u64::try_from(state.longest.as_nanos()).unwrap_or(u64::MAX),
            failure: state.failure.clone(),
        }
    }

    /// Ends the registration: drops queued calls, waits for the call in progress and calls [`exit`](Policy::exit), all
    /// within the policy's deadlines. Must not be called by the output callback, which would wait for itself.
    ///
    /// # Errors
    ///
    /// Why the policy failed, before or during its shutdown.
    pub fn shut_down(&self) -> Result<(), Arc<Error>> {
        let mut state = self.shared.lock();
        state.closing = true;
        state.queue.clear();
        drop(state);
        self.shared.work.notify_all();
        // the watchdog: a call in progress that only waits is not waited for
        self.shared.progress.notify_all();
        let limits = &self.shared.limits;
        let timeout = limits
            .longest_init()
            .saturating_add(limits.longest_exit())
            .saturating_add(SHUTDOWN_GRACE);
        drop(
            self.shared
                .wait(timeout, |state| state.done || state.failure.is_some()),
        );
        // after a failure the policy's thread still has to end the host process, and the callback to receive the failure
        let state = self
            .shared
            .wait(SHUTDOWN_GRACE, |state| state.done && !state.reporting);
        state.failure.clone().map_or(Ok(()), Err)
    }

    fn queue(&self, call: QueuedCall) {
        let mut state = self.shared.lock();
        let interests = state.interests();
        let needed = match call {
            // no interest stands for it: a policy without lists returns none
            QueuedCall::Start => true,
            QueuedCall::Prefetch(_) => interests.prefetch,
            QueuedCall::Evict(_) => interests.evict,
            QueuedCall::Touch(_) => interests.touch,
        };
        if state.closing || state.failure.is_some() || !needed {
            return;
        }
        state.queue.push(call);
        drop(state);
        self.shared.work.notify_one();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.shut_down(); // the failure, if any, was passed to the output callback
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("interests", &self.interests())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// The text of an error without the prefix of its kind, for wrapping it in an error of the same kind.
fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Policy(what) => what.clone(),
        other => other.to_string(),
    }
}
