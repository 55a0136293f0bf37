//! A policy on a thread of its own: never waited for, timed, checked, and without a registration once it breaks a rule.

mod check;
mod limits;
mod mailbox;
mod turn;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use limits::Call;
pub use limits::Limits;
use mailbox::{Mailbox, Waiting};

use crate::{Access, Context, Error, ErrorKind, Ios, Namespace, Policy, Prefetch, Result, Wants};

/// How long a removal waits for what a lost policy leaves behind.
const GRACE: Duration = Duration::from_millis(500);

/// What a guarded policy tells.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To bring; checked.
    Prefetch(Prefetch),
    /// To let go; checked.
    Evict(Ios),
    /// It lost its registration. The last answer.
    Lost(Arc<Error>),
}

/// What a guarded policy did so far.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that wait.
    pub waiting: usize,
    /// Accesses and evictions that became one call with an earlier one.
    pub merged: u64,
    /// Accesses that were dropped because the policy was too slow.
    pub dropped: u64,
    /// The longest call, in nanoseconds.
    pub longest: u64,
    /// Why it lost its registration.
    pub lost: Option<Arc<Error>>,
}

type Sink = Box<dyn FnMut(Answer) + Send>;

struct Inner {
    mail: Mailbox,
    /// What runs, since when, and until when it may.
    turn: Option<(Call, Instant, Instant)>,
    /// Until when the watch sleeps; `None` while it waits to be told.
    watched: Option<Instant>,
    /// The end of `init`; what it wants since.
    ready: Option<Result<Wants, String>>,
    /// Files that it has not been told of.
    files: Option<Arc<Namespace>>,
    closing: bool,
    /// The policy was dropped and its thread ends.
    done: bool,
    calls: u64,
    longest: Duration,
    lost: Option<Arc<Error>>,
}

impl Inner {
    fn wants(&self) -> Wants {
        self.ready
            .as_ref()
            .and_then(|ready| ready.as_ref().ok().copied())
            .unwrap_or_default()
    }
}

struct Shared {
    limits: Limits,
    inner: Mutex<Inner>,
    /// For the policy's thread.
    mail: Condvar,
    /// For its watch, and for those who wait for its beginning or end.
    state: Condvar,
    sink: Mutex<Sink>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, answer: Answer) {
        (self.sink.lock().unwrap_or_else(PoisonError::into_inner))(answer);
    }

    /// Ends the registration, once.
    fn lose(&self, what: String) {
        let error = Arc::new(Error::new(ErrorKind::Policy(what)));
        let mut inner = self.lock();
        if inner.lost.is_some() {
            return;
        }
        inner.lost = Some(Arc::clone(&error));
        inner.mail.clear();
        let registered = matches!(inner.ready, Some(Ok(_)));
        drop(inner);
        self.mail.notify_all();
        self.state.notify_all();
        if registered {
            tracing::warn!("a policy lost its registration: {error}");
            self.tell(Answer::Lost(error));
        }
    }

    /// Waits until `until` holds, for so long at most.
    fn wait(&self, timeout: Duration, until: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let waited = self
            .state
            .wait_timeout_while(self.lock(), timeout, |inner| !until(inner));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A policy that was registered: it runs on a thread of its own, calls wait for it in a mailbox, and answers go where
/// [`register`](Self::register) was told. A policy that panics, is late, gives up or names bytes that are in no file of
/// the namespace loses its registration, and nothing else happens.
///
/// A policy that never returns keeps its thread, which cannot be taken from it; one that may do so belongs into a process
/// of its own ([`Library`](crate::host::Library)).
pub struct Guarded {
    shared: Arc<Shared>,
}

impl Guarded {
    /// Starts the policy: its [`init`](Policy::init) is waited for. Answers are told to `sink` from the policy's
    /// thread, [`Answer::Lost`] also from its watch's; a sink that blocks holds up this policy only.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Policy`]: it did not want to start, panicked or was late. The sink has heard nothing.
    pub fn register(
        policy: Box<dyn Policy>,
        context: Context,
        limits: Limits,
        sink: impl FnMut(Answer) + Send + 'static,
    ) -> Result<Self> {
        let inner = Inner {
            mail: Mailbox::new(limits.waiting),
            turn: None,
            watched: None,
            ready: None,
            files: None,
            closing: false,
            done: false,
            calls: 0,
            longest: Duration::ZERO,
            lost: None,
        };
        let shared = Arc::new(Shared {
            limits,
            inner: Mutex::new(inner),
            mail: Condvar::new(),
            state: Condvar::new(),
            sink: Mutex::new(Box::new(sink)),
        });
        let watch = Arc::clone(&shared);
        thread::Builder::new()
            .name("ppc-watch".into())
            .stack_size(128 << 10)
            .spawn(move || turn::watch(&watch))?;
        let turns = turn::Turns::new(policy, context, Arc::clone(&shared));
        if let Err(error) = thread::Builder::new()
            .name("ppc-policy".into())
            .spawn(move || turns.run())
        {
            shared.lock().done = true;
            shared.state.notify_all();
            return Err(error.into());
        }
        // the watch ends a late `init`; the rest is for a machine that does not run it
        let inner = shared.wait(limits.begin.saturating_mul(4), |inner| {
            inner.ready.is_some() || inner.lost.is_some()
        });
        let lost = inner
            .lost
            .as_ref()
            .map(|error| Error::new(ErrorKind::Policy(reason(error))));
        let ready = inner.ready.clone();
        drop(inner);
        match (lost, ready) {
            (None, Some(Ok(_))) => Ok(Self { shared }),
            (Some(error), _) => Err(error),
            (None, Some(Err(what))) => Err(Error::new(ErrorKind::Policy(what))),
            (None, None) => {
                shared.lose(Call::Init.late(&limits));
                Err(Error::new(ErrorKind::Policy(Call::Init.late(&limits))))
            }
        }
    }

    /// Which calls it wants; others are not passed on.
    pub fn wants(&self) -> Wants {
        self.shared.lock().wants()
    }

    /// The directory has these files now. Waits until the policy has been told, or its deadlines are over.
    pub fn renew(&self, files: Arc<Namespace>) {
        let mut inner = self.shared.lock();
        inner.files = Some(files);
        drop(inner);
        self.shared.mail.notify_one();
        let Limits { begin, call, .. } = self.shared.limits;
        let told = |inner: &Inner| inner.files.is_none() || inner.done || inner.lost.is_some();
        drop(
            self.shared
                .wait(begin.saturating_add(call).saturating_add(GRACE), told),
        );
    }

    /// The service is about to start. Never blocks, as the three below.
    pub fn start(&self) {
        self.put(Waiting::Start);
    }

    /// A process waits for bytes.
    pub fn prefetch(&self, miss: Access) {
        self.put(Waiting::Prefetch(miss));
    }

    /// Memory is short, at a miss or (`None`) at any time.
    pub fn evict(&self, miss: Option<Access>) {
        self.put(Waiting::Evict(miss));
    }

    /// A process asked for bytes.
    pub fn touch(&self, access: Access) {
        self.put(Waiting::Touch(access));
    }

    /// Why it lost its registration, if it did.
    pub fn lost(&self) -> Option<Arc<Error>> {
        self.shared.lock().lost.clone()
    }

    /// What it did so far.
    pub fn status(&self) -> Status {
        let inner = self.shared.lock();
        Status {
            calls: inner.calls,
            waiting: inner.mail.len(),
            merged: inner.mail.merged,
            dropped: inner.mail.dropped,
            longest: u64::try_from(inner.longest.as_nanos()).unwrap_or(u64::MAX),
            lost: inner.lost.clone(),
        }
    }

    /// Ends the registration: what waits is dropped, what runs is waited for, [`exit`](Policy::exit) is called; all
    /// within its deadlines. Not to be called by the sink.
    ///
    /// # Errors
    ///
    /// Why it was lost, before or during its removal.
    pub fn remove(&self) -> Result<(), Arc<Error>> {
        let mut inner = self.shared.lock();
        inner.closing = true;
        inner.mail.clear();
        drop(inner);
        self.shared.mail.notify_all();
        let limits = &self.shared.limits;
        let longest = limits
            .call
            .max(limits.begin)
            .saturating_add(limits.exit)
            .saturating_add(GRACE);
        drop(
            self.shared
                .wait(longest, |inner| inner.done || inner.lost.is_some()),
        );
        // a host process of a lost policy is ended by the policy's thread
        let inner = self.shared.wait(GRACE, |inner| inner.done);
        inner.lost.clone().map_or(Ok(()), Err)
    }

    fn put(&self, call: Waiting) {
        let mut inner = self.shared.lock();
        let wants = inner.wants();
        let wanted = match call {
            Waiting::Start => true,
            Waiting::Prefetch(_) => wants.prefetch,
            Waiting::Evict(_) => wants.evict,
            Waiting::Touch(_) => wants.touch,
        };
        if inner.closing || inner.lost.is_some() || !wanted {
            return;
        }
        inner.mail.put(call);
        drop(inner);
        self.shared.mail.notify_one();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.remove(); // kept for those who ask for the status
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("wants", &self.wants())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// The text of an error, without its kind.
fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Policy(what) => what.clone(),
        other => other.to_string(),
    }
}
