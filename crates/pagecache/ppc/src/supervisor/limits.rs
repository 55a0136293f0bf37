//! Deadlines and size limits of a policy.

use std::time::Duration;

use super::PANIC_TIMEOUT;
use super::call_clock::{CallLimit, ExceededLimit};

/// The limits of a policy. A policy that exceeds one of them is deregistered, except for `queued_calls`.
///
/// A deadline is of the policy's own time: a call may take as long on the clock, and then use as much processor time again. So the
/// deadlines may be short, and on a busy machine they end no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLimits {
    /// Deadline of [`init`](crate::Policy::init), [`files_changed`](crate::Policy::files_changed),
    /// [`start`](crate::Policy::start), [`idle`](crate::Policy::idle) and [`report`](crate::Policy::report).
    pub init: Duration,
    /// Deadline of [`prefetch`](crate::Policy::prefetch), [`evict`](crate::Policy::evict) and
    /// [`touch`](crate::Policy::touch).
    pub call: Duration,
    /// Deadline of [`exit`](crate::Policy::exit).
    pub exit: Duration,
    /// How much longer than its deadline a call may take while it does not use the processor, because it waits: for a processor, a
    /// disk or a lock. Time during which the whole program is stopped does not count.
    pub stall: Duration,
    /// Maximum number of entries in a returned list.
    pub list_entries: usize,
    /// Maximum number of queued calls. When the queue is full, its oldest call is dropped.
    pub queued_calls: usize,
    /// Maximum memory of a host process in bytes.
    pub host_memory: u64,
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self {
            // the calls without a waiting reader may parse templates and scan directories
            init: Duration::from_secs(5),
            // a thread waits for the device meanwhile: a tenth of a second delays a load, and no policy needs a tenth
            // of it
            call: Duration::from_millis(100),
            exit: Duration::from_secs(1),
            stall: Duration::from_secs(5),
            // the largest models have 155,000 tensors
            list_entries: 1 << 18,
            // a policy that falls further behind decides about reads that are over
            queued_calls: 1024,
            host_memory: 1 << 30,
        }
    }
}

impl PolicyLimits {
    /// The longest time that a call other than [`exit`](crate::Policy::exit) takes until its policy is deregistered, on a machine
    /// that runs it.
    pub(super) fn longest_init(&self) -> Duration {
        self.longest(self.call.max(self.init))
    }

    /// The same of [`exit`](crate::Policy::exit).
    pub(super) fn longest_exit(&self) -> Duration {
        self.longest(self.exit)
    }

    fn longest(&self, own: Duration) -> Duration {
        // twice: on the clock, and then in processor time
        let call = own.saturating_mul(2).saturating_add(self.stall);
        call.saturating_add(PANIC_TIMEOUT)
    }
}

/// The functions of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyCall {
    Init,
    FilesChanged,
    Start,
    Prefetch,
    Evict,
    Touch,
    Idle,
    Report,
    Exit,
}

impl PolicyCall {
    /// The name of the function, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::FilesChanged => "files_changed",
            Self::Start => "start",
            Self::Prefetch => "prefetch",
            Self::Evict => "evict",
            Self::Touch => "touch",
            Self::Idle => "idle",
            Self::Report => "report",
            Self::Exit => "exit",
        }
    }

    /// How long the function may take.
    pub(crate) fn limit(self, limits: &PolicyLimits) -> CallLimit {
        let own = match self {
            Self::Init | Self::FilesChanged | Self::Start | Self::Idle | Self::Report => {
                limits.init
            }
            Self::Exit => limits.exit,
            Self::Prefetch | Self::Evict | Self::Touch => limits.call,
        };
        let stall = limits.stall;
        CallLimit { own, stall }
    }

    /// The error message for a call that exceeded its deadline.
    pub(crate) fn timeout_message(self, exceeded: ExceededLimit) -> String {
        let name = self.name();
        match exceeded {
            ExceededLimit::Processor(limit) => {
                format!("{name} did not return within {limit:?} of processor time")
            }
            ExceededLimit::Elapsed(limit) => format!("{name} did not return within {limit:?}"),
        }
    }
}
