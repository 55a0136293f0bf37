//! The state of the policy as plain data, for logs, tests and the status of a runtime.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// The activity of a [`Maio`](crate::Maio) for one model, and its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MaioState {
    /// The current activity.
    pub phase: MaioPhase,
    /// The model: its path relative to the directory of the policy, which is empty if it is that directory. Where files with
    /// numbered names are one model, `#` stands for the numbers.
    pub model: String,
    /// The reason if it is idle, the template is stale, or the service deviates from it.
    pub reason: Option<String>,
    /// The id of the service.
    pub service: Option<String>,
    /// A summary of the template: `4 workers read 145 GB of 37 files in 3212 accesses`.
    pub template: Option<String>,
    /// The groups of the template, by rank.
    pub groups: Vec<GroupState>,
    /// Bytes of the template that the workers of this machine read, each counted once; 0 without a template.
    pub wanted: u64,
    /// Bytes kept in memory behind each worker.
    pub distance: u64,
    /// Bytes prefetched ahead of each worker; `None`: all.
    pub window: Option<u64>,
    /// Bytes recorded so far.
    pub recorded: u64,
    /// Accesses to bytes of the model that the template does not have.
    pub off_template: u64,
    /// Their fraction of all accesses to the model's files, from 0 to 1.
    pub off_template_share: f64,
}

/// The activity of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MaioPhase {
    /// It is not registered, or has no template and records none. The kernel alone manages the page
    /// cache.
    #[default]
    Idle,
    /// It follows a template.
    Following,
    /// It follows a template from which the service deviates. Bytes outside of the template are
    /// left to the kernel.
    OffTemplate,
    /// It records a template.
    Recording,
    /// The template describes other files. The kernel alone manages the page cache.
    Stale,
}

impl fmt::Display for MaioPhase {
    /// As it is serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Following => "following",
            Self::OffTemplate => "off-template",
            Self::Recording => "recording",
            Self::Stale => "stale",
        })
    }
}

/// The state of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupState {
    /// Its rank.
    pub rank: u32,
    /// Its name; may be empty.
    pub name: String,
    /// The process that reads for it, once one was seen.
    pub pid: Option<u32>,
    /// Bytes of its schedule.
    pub nbytes: u64,
    /// How many of them it has read.
    pub position: u64,
    /// How often prefetching was restarted at a miss.
    pub restarts: u64,
    /// How often its read position jumped.
    pub jumps: u64,
    /// Bytes that were returned for eviction.
    pub evicted: u64,
}

/// Observes the states of a [`Maio`](crate::Maio) that was moved into a runtime. They are updated every 256 events.
#[derive(Clone, Debug, Default)]
pub struct StateWatch(Arc<Mutex<(usize, Vec<MaioState>)>>);

impl StateWatch {
    /// Returns the activity and its counters for the model that was read last, as of the last update.
    pub fn state(&self) -> MaioState {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.1.get(watched.0).cloned().unwrap_or_default()
    }

    /// Returns the states of all models, as of the last update.
    pub fn services(&self) -> Vec<MaioState> {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.1.clone()
    }

    pub(crate) fn update(&self, last: usize, services: Vec<MaioState>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (last, services);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_shown_as_it_is_serialised() {
        use MaioPhase::{Following, Idle, OffTemplate, Recording, Stale};
        for phase in [Idle, Following, OffTemplate, Recording, Stale] {
            let serialised = serde_json::to_value(phase).unwrap();
            assert_eq!(serialised, phase.to_string());
        }
    }
}
