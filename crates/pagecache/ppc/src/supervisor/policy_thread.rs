//! The thread that calls a policy, and the watchdog that enforces its deadlines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::call_clock::{CallClock, processor_time};
use super::call_queue::QueuedCall;
use super::validate::RangeValidator;
use super::{
    ActiveCall, PANIC_TIMEOUT, PolicyCall, PolicyOutput, SupervisorShared, SupervisorState,
};
use crate::export::panic_message;
use crate::source::poll::monotonic_ns;
use crate::{Namespace, Policy, PolicyContext};

/// At least how often [`Policy::idle`] is called.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Owns the policy and makes one call at a time.
pub(super) struct PolicyThread {
    policy: Box<dyn Policy>,
    context: PolicyContext,
    validator: RangeValidator,
    shared: Arc<SupervisorShared>,
    /// Whether the last call was [`Policy::idle`].
    idled: bool,
    /// When [`Policy::idle`] has to be called even if other calls are queued.
    idle_due: Instant,
}

/// Sets `done` when the thread ends, even by a panic.
struct SetDone(Arc<SupervisorShared>);

impl Drop for SetDone {
    fn drop(&mut self) {
        self.0.lock().done = true;
        self.0.progress.notify_all();
    }
}

impl PolicyThread {
    pub(super) fn new(
        policy: Box<dyn Policy>,
        context: PolicyContext,
        shared: Arc<SupervisorShared>,
    ) -> Self {
        let max_entries = shared.limits.list_entries;
        let validator = RangeValidator::new(Arc::clone(&context.namespace), max_entries);
        Self {
            policy,
            context,
            validator,
            shared,
            idled: false,
            idle_due: Instant::now() + IDLE_INTERVAL,
        }
    }

    pub(super) fn run(mut self) {
        let _done = SetDone(Arc::clone(&self.shared));
        let tid = rustix::thread::gettid().as_raw_nonzero();
        self.shared.lock().schedstat = format!("/proc/self/task/{tid}/schedstat").into();
        if self.init() {
            while let Some(call) = self.next() {
                if !self.make(call) {
                    break;
                }
            }
        }
        // the policy's destructor may panic, too; it has been deregistered by now, so that is of no consequence
        let _ = catch_unwind(AssertUnwindSafe(move || drop(self.policy)));
    }

    fn init(&mut self) -> bool {
        let context = self.context.clone();
        let Some(ready) = self.call(PolicyCall::Init, |policy| {
            policy.init(&context).map(|()| policy.interests())
        }) else {
            return false;
        };
        let mut state = self.shared.lock();
        if state.failure.is_some() {
            return false; // the watchdog was faster
        }
        let succeeded = ready.is_ok();
        state.ready = Some(ready);
        drop(state);
        self.shared.progress.notify_all();
        succeeded
    }

    /// Waits for the next call; `None` when the registration has ended.
    fn next(&mut self) -> Option<QueuedCall> {
        let mut state = self.shared.lock();
        loop {
            if state.failure.is_some() {
                return None;
            }
            if state.closing {
                drop(state);
                self.call(PolicyCall::Exit, |policy| policy.exit());
                return None;
            }
            // before queued accesses, which may concern the new files
            if let Some(files) = state.new_files.clone() {
                drop(state);
                if !self.update_files(files) {
                    return None;
                }
                state = self.shared.lock();
                continue;
            }
            if state.report_requested {
                drop(state);
                let report = self.call(PolicyCall::Report, |policy| policy.report())?;
                state = self.shared.lock();
                (state.report, state.report_requested) = (report, false);
                self.shared.progress.notify_all();
                continue;
            }
            let idles = state.interests().idle;
            let due = idles && self.idle_due <= Instant::now();
            if !due && let Some(call) = state.queue.pop() {
                self.idled = false;
                return Some(call);
            }
            if due || (idles && !self.idled) {
                drop(state);
                if !self.idle() {
                    return None;
                }
                state = self.shared.lock();
                continue;
            }
            state = if idles {
                let timeout = self.idle_due.saturating_duration_since(Instant::now());
                let waited = self.shared.work.wait_timeout(state, timeout);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.shared.work.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Passes a new state of the directory to the policy. Returns whether the policy is still registered.
    fn update_files(&mut self, files: Arc<Namespace>) -> bool {
        self.validator.update(Arc::clone(&files));
        self.context.namespace = files;
        self.idled = false;
        let context = self.context.clone();
        match self.call(PolicyCall::FilesChanged, |policy| {
            policy.files_changed(&context)
        }) {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(what)) => {
                self.shared.fail(what);
                return false;
            }
        }
        let mut state = self.shared.lock();
        // unless a still newer state arrived during the call
        if state
            .new_files
            .as_ref()
            .is_some_and(|files| Arc::ptr_eq(files, &context.namespace))
        {
            state.new_files = None;
        }
        drop(state);
        self.shared.progress.notify_all();
        true
    }

    /// Makes a call, validates its output and passes it on. Returns whether the policy is still registered.
    fn make(&mut self, call: QueuedCall) -> bool {
        let outputs = match call {
            QueuedCall::Start => self
                .call(PolicyCall::Start, |policy| policy.start())
                .map(|all| {
                    all.into_iter()
                        .map(PolicyOutput::Prefetch)
                        .collect::<Vec<_>>()
                }),
            QueuedCall::Prefetch(miss) => self
                .call(PolicyCall::Prefetch, |policy| policy.prefetch(&miss))
                .map(|one| one.map(PolicyOutput::Prefetch).into_iter().collect()),
            QueuedCall::Evict(miss) => self
                .call(PolicyCall::Evict, |policy| policy.evict(miss.as_ref()))
                .map(|one| one.map(PolicyOutput::Evict).into_iter().collect()),
            QueuedCall::Touch(access) => self
                .call(PolicyCall::Touch, |policy| policy.touch(&access))
                .map(|one| one.map(PolicyOutput::Prefetch).into_iter().collect()),
        };
        outputs.is_some_and(|outputs| self.pass_on(outputs))
    }

    /// Calls [`Policy::idle`]. Returns whether the policy is still registered.
    fn idle(&mut self) -> bool {
        let now = monotonic_ns();
        let outputs = self.call(PolicyCall::Idle, |policy| policy.idle(now));
        (self.idled, self.idle_due) = (true, Instant::now() + IDLE_INTERVAL);
        outputs
            .is_some_and(|all| self.pass_on(all.into_iter().map(PolicyOutput::Prefetch).collect()))
    }

    /// Validates the output of a call and passes it on. Returns whether the policy is still registered.
    fn pass_on(&mut self, outputs: Vec<PolicyOutput>) -> bool {
        // all of them first: a policy with one invalid list has none carried out
        for output in &outputs {
            let (name, ranges) = match output {
                PolicyOutput::Prefetch(request) => ("prefetch", &request.ranges),
                PolicyOutput::Evict(ranges) => ("evict", ranges),
                PolicyOutput::Failed(_) => continue,
            };
            if let Err(what) = self.validator.check(ranges) {
                self.shared
                    .fail(format!("{name} returned an invalid list: {what}"));
                return false;
            }
        }
        for output in outputs {
            self.shared.emit(output);
        }
        true
    }

    /// Calls a function of the policy with a deadline and catches panics. `None` if the policy is deregistered.
    fn call<T>(
        &mut self,
        call: PolicyCall,
        function: impl FnOnce(&mut dyn Policy) -> T,
    ) -> Option<T> {
        let began = Instant::now();
        let clock = CallClock::start(call.limit(&self.shared.limits));
        let deadline = clock.next();
        let mut state = self.shared.lock();
        state.begun += 1;
        let number = state.begun;
        state.active = Some(ActiveCall {
            call,
            clock,
            number,
        });
        // The watchdog keeps sleeping until the deadline of an earlier call even when that call has returned, so that
        // most calls need not wake it. It has to be notified only if this deadline comes first.
        let wakes_too_late = state.watchdog_wakes.is_none_or(|wakes| deadline < wakes);
        drop(state);
        if wakes_too_late {
            self.shared.progress.notify_all();
        }
        let policy = &mut *self.policy;
        let returned = catch_unwind(AssertUnwindSafe(|| {
            let value = function(policy);
            (value, policy.failed(), policy.interests())
        }));
        let mut state = self.shared.lock();
        state.active = None;
        // a report is no call for the service
        if call != PolicyCall::Report {
            state.calls += 1;
            state.longest = state.longest.max(began.elapsed());
        }
        let failed = state.failure.is_some();
        // not before `init` has succeeded, which the registration waits for
        if let (Ok((_, None, interests)), Some(Ok(known))) = (&returned, &mut state.ready) {
            *known = *interests;
        }
        drop(state);
        // the order matters: a failure that the watchdog reported stands
        let what = match returned {
            _ if failed => return None,
            Ok((_, Some(what), _)) => what,
            Ok((value, None, _)) => return Some(value),
            Err(panic) => format!("{} panicked: {}", call.name(), panic_message(&*panic)),
        };
        self.shared.fail(what);
        None
    }
}

/// The watchdog: deregisters the policy when a call exceeds its deadline. Returns when the policy's thread ends.
pub(super) fn enforce_deadlines(shared: &SupervisorShared) {
    let mut state = shared.lock();
    while !state.done && state.failure.is_none() {
        let schedstat = state.schedstat.clone();
        let closing = state.closing;
        let looked = state.active.as_mut().map(|active| {
            // the last call may write what the policy has recorded
            if closing && active.call != PolicyCall::Exit {
                active.clock.end_stall();
            }
            let left = active
                .clock
                .look(Instant::now(), || processor_time(&schedstat));
            (*active, left)
        });
        // under the lock, so that a call which starts now compares its deadline with the one that is slept for
        state.watchdog_wakes = looked.as_ref().map(|(active, _)| active.clock.next());
        match looked {
            Some((active, Err(exceeded))) => {
                // A panic may be printing its backtrace, which takes longer than a call may. It is then reported as the panic that
                // it is; a call that returns in this time is not late.
                state.watchdog_wakes = Some(Instant::now() + PANIC_TIMEOUT);
                let goes_on = |state: &mut SupervisorState| {
                    let number = state.active.map(|active| active.number);
                    number == Some(active.number) && state.failure.is_none()
                };
                // the model checker has no clock, and would wait without end
                if !cfg!(shuttle) {
                    let waited = shared
                        .progress
                        .wait_timeout_while(state, PANIC_TIMEOUT, goes_on);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                if goes_on(&mut state) {
                    drop(state);
                    shared.fail(active.call.timeout_message(exceeded));
                    return;
                }
            }
            Some((_, Ok(left))) => {
                let waited = shared.progress.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            None => {
                state = shared
                    .progress
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}
