//! What a policy may take: time and entries.

use std::time::Duration;

/// What a policy may take before it loses its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For [`init`](crate::Policy::init), [`renew`](crate::Policy::renew) and [`start`](crate::Policy::start).
    pub begin: Duration,
    /// For [`prefetch`](crate::Policy::prefetch), [`evict`](crate::Policy::evict) and [`touch`](crate::Policy::touch).
    pub call: Duration,
    /// For [`exit`](crate::Policy::exit).
    pub exit: Duration,
    /// Entries of one list.
    pub entries: usize,
    /// Calls that wait because the policy is slower than the misses; beyond it the oldest are dropped.
    pub waiting: usize,
    /// Bytes of memory that a host process may take.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            begin: Duration::from_secs(5),
            call: Duration::from_millis(100),
            exit: Duration::from_secs(1),
            entries: 1 << 18,
            waiting: 1024,
            memory: 1 << 30,
        }
    }
}

/// What a policy is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Init,
    Renew,
    Start,
    Prefetch,
    Evict,
    Touch,
    Exit,
}

impl Call {
    /// As messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Renew => "renew",
            Self::Start => "start",
            Self::Prefetch => "prefetch",
            Self::Evict => "evict",
            Self::Touch => "touch",
            Self::Exit => "exit",
        }
    }

    /// How long it may take.
    pub(crate) fn deadline(self, limits: &Limits) -> Duration {
        match self {
            Self::Init | Self::Renew | Self::Start => limits.begin,
            Self::Exit => limits.exit,
            Self::Prefetch | Self::Evict | Self::Touch => limits.call,
        }
    }

    /// What is said of one that took longer.
    pub(crate) fn late(self, limits: &Limits) -> String {
        format!(
            "{} did not answer within {:?}",
            self.name(),
            self.deadline(limits)
        )
    }
}
