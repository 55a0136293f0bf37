//! The thread that calls a policy, and the one that watches the time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::check::Checked;
use super::mailbox::Waiting;
use super::{Answer, Call, Shared};
use crate::export::said;
use crate::{Context, Namespace, Policy};

/// Calls the policy, one call at a time.
pub(super) struct Turns {
    policy: Box<dyn Policy>,
    context: Context,
    checked: Checked,
    shared: Arc<Shared>,
}

/// Says that the thread ends, however it does.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.lock().done = true;
        self.0.state.notify_all();
    }
}

impl Turns {
    pub(super) fn new(policy: Box<dyn Policy>, context: Context, shared: Arc<Shared>) -> Self {
        let checked = Checked::new(Arc::clone(&context.namespace), shared.limits.entries);
        Self {
            policy,
            context,
            checked,
            shared,
        }
    }

    pub(super) fn run(mut self) {
        let _done = Done(Arc::clone(&self.shared));
        if self.init() {
            while let Some(call) = self.next() {
                if !self.answer(call) {
                    break;
                }
            }
        }
        // a policy that cannot even be dropped is past saying so
        let _ = catch_unwind(AssertUnwindSafe(move || drop(self.policy)));
    }

    fn init(&mut self) -> bool {
        let context = self.context.clone();
        let ready = match self.call(Call::Init, |policy| {
            policy.init(&context).map(|()| policy.wants())
        }) {
            None => return false,
            Some(Ok(wants)) => Ok(wants),
            Some(Err(what)) => Err(what),
        };
        let mut inner = self.shared.lock();
        if inner.lost.is_some() {
            return false; // as the time was over
        }
        let good = ready.is_ok();
        inner.ready = Some(ready);
        drop(inner);
        self.shared.state.notify_all();
        good
    }

    /// The next call; `None` when the registration has ended.
    fn next(&mut self) -> Option<Waiting> {
        let mut inner = self.shared.lock();
        loop {
            if inner.lost.is_some() {
                return None;
            }
            if inner.closing {
                drop(inner);
                self.call(Call::Exit, |policy| policy.exit());
                return None;
            }
            // before what was asked for of them
            if let Some(files) = inner.files.clone() {
                drop(inner);
                if !self.renew(files) {
                    return None;
                }
                inner = self.shared.lock();
                continue;
            }
            if let Some(call) = inner.mail.take() {
                return Some(call);
            }
            inner = self
                .shared
                .mail
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells of other files. `false` when the registration is lost.
    fn renew(&mut self, files: Arc<Namespace>) -> bool {
        self.checked.renew(Arc::clone(&files));
        self.context.namespace = files;
        let context = self.context.clone();
        let wants = match self.call(Call::Renew, |policy| {
            policy.renew(&context).map(|()| policy.wants())
        }) {
            None => return false,
            Some(Ok(wants)) => wants,
            Some(Err(what)) => {
                self.shared.lose(what);
                return false;
            }
        };
        let mut inner = self.shared.lock();
        inner.ready = Some(Ok(wants));
        if inner
            .files
            .as_ref()
            .is_some_and(|files| Arc::ptr_eq(files, &context.namespace))
        {
            inner.files = None;
        }
        drop(inner);
        self.shared.state.notify_all();
        true
    }

    /// Makes a call and passes the answer on. `false` when the registration is lost.
    fn answer(&mut self, call: Waiting) -> bool {
        let answers = match call {
            Waiting::Start => self
                .call(Call::Start, |policy| policy.start())
                .map(|all| all.into_iter().map(Answer::Prefetch).collect::<Vec<_>>()),
            Waiting::Prefetch(miss) => self
                .call(Call::Prefetch, |policy| policy.prefetch(&miss))
                .map(|one| one.map(Answer::Prefetch).into_iter().collect()),
            Waiting::Evict(miss) => self
                .call(Call::Evict, |policy| policy.evict(miss.as_ref()))
                .map(|one| one.map(Answer::Evict).into_iter().collect()),
            Waiting::Touch(access) => self
                .call(Call::Touch, |policy| policy.touch(&access))
                .map(|one| one.map(Answer::Prefetch).into_iter().collect()),
        };
        let Some(answers) = answers else { return false };
        for answer in &answers {
            let (name, ios) = match answer {
                Answer::Prefetch(prefetch) => ("prefetch", &prefetch.ios),
                Answer::Evict(ios) => ("evict", ios),
                Answer::Lost(_) => continue,
            };
            if let Err(what) = self.checked.check(ios) {
                self.shared
                    .lose(format!("{name} answered what cannot be meant: {what}"));
                return false;
            }
        }
        for answer in answers {
            self.shared.tell(answer);
        }
        true
    }

    /// One call, timed and caught. `None` when the registration is lost.
    fn call<T>(&mut self, call: Call, with: impl FnOnce(&mut dyn Policy) -> T) -> Option<T> {
        let began = Instant::now();
        let until = began + call.deadline(&self.shared.limits);
        let mut inner = self.shared.lock();
        inner.turn = Some((call, began, until));
        let unwatched = inner.watched.is_none_or(|watched| until < watched);
        drop(inner);
        if unwatched {
            self.shared.state.notify_all();
        }
        let policy = &mut *self.policy;
        let returned = catch_unwind(AssertUnwindSafe(|| {
            let value = with(policy);
            (value, policy.failed())
        }));
        let mut inner = self.shared.lock();
        inner.turn = None;
        inner.calls += 1;
        inner.longest = inner.longest.max(began.elapsed());
        let lost = inner.lost.is_some();
        drop(inner);
        let what = match returned {
            _ if lost => return None,
            Ok((_, Some(what))) => what,
            _ if Instant::now() > until => call.late(&self.shared.limits),
            Ok((value, None)) => return Some(value),
            Err(panic) => format!("{} panicked: {}", call.name(), said(&*panic)),
        };
        self.shared.lose(what);
        None
    }
}

/// Takes the registration from a policy that is late. Ends with the policy's thread.
pub(super) fn watch(shared: &Shared) {
    let mut inner = shared.lock();
    while !inner.done && inner.lost.is_none() {
        let now = Instant::now();
        inner.watched = inner.turn.map(|(_, _, until)| until);
        match inner.turn {
            Some((call, _, until)) if until <= now => {
                drop(inner);
                shared.lose(call.late(&shared.limits));
                return;
            }
            Some((_, _, until)) => {
                let waited = shared.state.wait_timeout(inner, until - now);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            None => {
                inner = shared
                    .state
                    .wait(inner)
                    .unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}
