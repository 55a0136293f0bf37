//! What a runtime did so far, as data: JSON, and Prometheus' text.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::Registered;
use crate::cache::{Evicted, Progress};

/// What a [`Runtime`](crate::Runtime) did since it was made.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The process.
    pub pid: u32,
    /// Seconds.
    pub running: f64,
    /// The name of the source that tells events; empty before it runs.
    pub source: &'static str,
    /// What the source cannot see, in words.
    pub blind: &'static str,
    /// What it told.
    pub events: Events,
    /// The policies, by directory.
    pub policies: Vec<PolicyStatus>,
    /// What was brought.
    pub prefetch: Progress,
    /// What was let go.
    pub evict: Let,
    /// What may be used of memory.
    pub memory: MemoryUse,
}

/// Events, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Events {
    /// That were told, of this process too.
    pub told: u64,
    /// That happened and were not told.
    pub lost: u64,
    /// Of inodes that no policy decides for; neighbours merged, as in those below.
    pub outside: u64,
    /// That a file was opened.
    pub opens: u64,
    /// Accesses that waited for the device.
    pub misses: u64,
    /// Their bytes.
    pub missed_bytes: u64,
    /// Accesses of any kind, where the source tells them.
    pub touches: u64,
    /// Their bytes.
    pub touched_bytes: u64,
    /// The longest time from a miss to its policy's mailbox, in nanoseconds.
    pub longest_lag: u64,
}

/// A policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyStatus {
    /// The directory that it decides for.
    pub path: PathBuf,
    /// What it is called.
    pub name: String,
    /// Files of the directory.
    pub files: usize,
    /// Calls that it answered.
    pub calls: u64,
    /// Calls that wait.
    pub waiting: usize,
    /// Accesses that were dropped because it was too slow.
    pub dropped: u64,
    /// Its longest call, in nanoseconds.
    pub longest: u64,
    /// Why it lost its registration.
    pub lost: Option<String>,
}

impl PolicyStatus {
    pub(super) fn of(registered: &Registered, names: &[(PathBuf, String)]) -> Self {
        let namespace = &registered.origin().namespace;
        let status = registered.policy().status();
        let name = names
            .iter()
            .find(|(path, _)| path == namespace.root())
            .map(|(_, name)| name.clone());
        Self {
            path: namespace.root().to_owned(),
            name: name.unwrap_or_default(),
            files: namespace.entries().len(),
            calls: status.calls,
            waiting: status.waiting,
            dropped: status.dropped,
            longest: status.longest,
            lost: status.lost.map(|error| error.to_string()),
        }
    }
}

/// What was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Let {
    /// Lists.
    pub lists: u64,
    /// What came of them.
    #[serde(flatten)]
    pub bytes: Evicted,
}

/// Memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that may be in use.
    pub limit: u64,
    /// Times that it was looked at and short.
    pub short: u64,
}

impl Status {
    /// The share of accessed bytes that were in memory; `None` where the source tells misses only.
    #[allow(clippy::cast_precision_loss)] // a share
    pub fn hit_rate(&self) -> Option<f64> {
        let Events {
            touched_bytes,
            missed_bytes,
            ..
        } = self.events;
        (touched_bytes > 0)
            .then(|| 1.0 - missed_bytes.min(touched_bytes) as f64 / touched_bytes as f64)
    }

    /// The status with [`hit_rate`](Self::hit_rate) and [`prometheus`](Self::prometheus) beside its fields, as
    /// [`ask`](super::ask) answers.
    pub fn document(&self) -> serde_json::Value {
        let mut document = serde_json::to_value(self).unwrap_or_default();
        document["hit_rate"] = self.hit_rate().into();
        document["prometheus"] = self.prometheus().into();
        document
    }

    /// As Prometheus reads it: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "# HELP anamnesis_ppc_{name} {help}");
            let _ = writeln!(text, "# TYPE anamnesis_ppc_{name} {kind}");
            let _ = writeln!(text, "anamnesis_ppc_{name} {value}");
        };
        let Self {
            events,
            prefetch,
            evict,
            memory,
            ..
        } = self;
        metric(
            "events_total",
            "counter",
            "Events that were told.",
            &events.told,
        );
        metric(
            "events_lost_total",
            "counter",
            "Events that happened and were not told.",
            &events.lost,
        );
        metric(
            "misses_total",
            "counter",
            "Accesses that waited for the device.",
            &events.misses,
        );
        metric(
            "missed_bytes_total",
            "counter",
            "Bytes of those accesses.",
            &events.missed_bytes,
        );
        metric(
            "touched_bytes_total",
            "counter",
            "Bytes of all accesses that were told.",
            &events.touched_bytes,
        );
        metric(
            "prefetched_bytes_total",
            "counter",
            "Bytes that were brought.",
            &prefetch.bytes_read,
        );
        metric(
            "resident_bytes_total",
            "counter",
            "Bytes to bring that were there.",
            &prefetch.bytes_skipped,
        );
        metric(
            "evicted_bytes_total",
            "counter",
            "Bytes that were let go.",
            &evict.bytes.gone,
        );
        metric(
            "evict_left_bytes_total",
            "counter",
            "Bytes to let go that stayed.",
            &evict.bytes.left,
        );
        metric(
            "memory_used_bytes",
            "gauge",
            "Memory in use, page cache included.",
            &memory.used,
        );
        metric(
            "memory_limit_bytes",
            "gauge",
            "Memory that may be in use.",
            &memory.limit,
        );
        metric(
            "memory_short_total",
            "counter",
            "Times that memory was looked at and short.",
            &memory.short,
        );
        let active = self
            .policies
            .iter()
            .filter(|policy| policy.lost.is_none())
            .count();
        metric(
            "policies",
            "gauge",
            "Policies that are registered.",
            &active,
        );
        text
    }
}
