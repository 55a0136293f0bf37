//! Deadlines and size limits of a policy.

use std::time::Duration;

/// The limits of a policy. A policy that exceeds one of them is deregistered, except for `queued_calls`.
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
            init: Duration::from_secs(5),
            call: Duration::from_millis(100),
            exit: Duration::from_secs(1),
            list_entries: 1 << 18,
            queued_calls: 1024,
            host_memory: 1 << 30,
        }
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
    pub(crate) fn timeout(self, limits: &PolicyLimits) -> Duration {
        match self {
            Self::Init | Self::FilesChanged | Self::Start | Self::Idle | Self::Report => {
                limits.init
            }
            Self::Exit => limits.exit,
            Self::Prefetch | Self::Evict | Self::Touch => limits.call,
        }
    }

    /// The error message for a call that exceeded its deadline.
    pub(crate) fn timeout_message(self, limits: &PolicyLimits) -> String {
        format!(
            "{} did not return within {:?}",
            self.name(),
            self.timeout(limits)
        )
    }
}
