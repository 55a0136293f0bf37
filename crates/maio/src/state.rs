//! What the policy is doing, as data.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// What a [`Maio`](crate::Maio) is doing and has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    /// What it is doing.
    pub phase: Phase,
    /// Why it does no more than that, in words.
    pub why: Option<String>,
    /// The service's id.
    pub service: Option<String>,
    /// The template in one line: `4 workers read 145 GB of 37 files in 3212 accesses`.
    pub template: Option<String>,
    /// The groups of the template, by rank.
    pub groups: Vec<GroupState>,
    /// Bytes of a worker's reads that are kept behind it.
    pub distance: u64,
    /// Bytes that are brought ahead of a worker; none: all.
    pub window: Option<u64>,
    /// Bytes that a recording has.
    pub recorded: u64,
    /// Accesses to files of the model that the template does not have.
    pub strays: u64,
    /// Of all accesses to the model's files; from 0 to 1.
    pub stray_share: f64,
}

/// What a policy is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// Nothing: it is not registered, or has no template and records none. The kernel decides.
    #[default]
    Idle,
    /// It follows a template.
    Following,
    /// It follows a template that the service has left. What the template does not have is the kernel's.
    Left,
    /// It records a template.
    Recording,
    /// The template is for other files. The kernel decides.
    Stale,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupState {
    /// Its number.
    pub rank: u32,
    /// Its name; may be empty.
    pub name: String,
    /// The process that reads it.
    pub pid: Option<u32>,
    /// Bytes that it reads.
    pub nbytes: u64,
    /// How many of them it is through with.
    pub front: u64,
    /// How often prefetching began anew where it was.
    pub restarts: u64,
    /// How often it went elsewhere.
    pub jumps: u64,
    /// Bytes that were let go.
    pub evicted: u64,
}

/// Sees the state of a [`Maio`](crate::Maio) that a runtime has, as it was a few accesses ago.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<State>>);

impl Watch {
    /// What it is doing and has done.
    pub fn state(&self) -> State {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn renew(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
