//! The counters of a runtime, as JSON and in Prometheus's text format.

use std::path::PathBuf;

use serde::Serialize;

use super::prefetch_ledger::{PrefetchLedger, PrefetchedBytes};
use super::prometheus;
use crate::cache::{Evicted, PrefetchProgress};
use crate::{Registration, ServiceReport};

/// The work of a [`Runtime`](crate::Runtime) since it was created.
#[derive(Clone, Debug, Serialize)]
pub struct RuntimeStatus {
    /// The process.
    pub pid: u32,
    /// Age of the runtime in seconds.
    pub uptime_s: f64,
    /// Name of the event source; empty before the event loop runs.
    pub source: &'static str,
    /// Accesses that the event source does not report, as a phrase.
    pub limitations: &'static str,
    /// Why policies in shared libraries do not run in this process, as a clause, if they do not.
    pub libraries_unavailable: Option<&'static str>,
    /// Event counters.
    pub events: EventCounts,
    /// The registered policies, by directory.
    pub policies: Vec<PolicyStatus>,
    /// The prefetched bytes.
    pub prefetch: PrefetchProgress,
    /// The evicted bytes.
    pub evict: EvictionTotals,
    /// Memory usage.
    pub memory: MemoryStatus,
}

/// Event counters. All but `received` and `lost` count merged events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EventCounts {
    /// Events received from the source, including those caused by this process.
    pub received: u64,
    /// Events that the source lost.
    pub lost: u64,
    /// Events of files that belong to no policy.
    pub unmatched: u64,
    /// Opens and maps of files.
    pub opens: u64,
    /// Accesses that missed the page cache.
    pub misses: u64,
    /// Bytes of those accesses.
    pub missed_bytes: u64,
    /// All accesses, if the source reports them.
    pub touches: u64,
    /// Bytes of those accesses.
    pub touched_bytes: u64,
    /// The longest time from a miss until it was queued for its policy, in nanoseconds.
    pub max_lag_ns: u64,
}

/// The status of a registered policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyStatus {
    /// The directory that it is registered for.
    pub path: PathBuf,
    /// The name given at registration.
    pub name: String,
    /// Number of files in the directory.
    pub files: usize,
    /// Calls that returned.
    pub calls: u64,
    /// Calls in its queue.
    pub queued: usize,
    /// Calls that were dropped because the queue was full.
    pub dropped: u64,
    /// Duration of its longest call in nanoseconds.
    pub longest_call_ns: u64,
    /// Why it was deregistered, if it failed.
    pub failure: Option<String>,
    /// The bytes that were prefetched for it.
    #[serde(flatten)]
    pub bytes: PrefetchedBytes,
    /// Its work for each model, if it [reports](crate::Policy::report) that.
    pub services: Vec<ServiceStatus>,
}

/// The work of a policy for a model, and the bytes that were prefetched of it.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceStatus {
    /// The policy's own report.
    #[serde(flatten)]
    pub report: ServiceReport,
    /// The bytes that were prefetched of its files.
    #[serde(flatten)]
    pub bytes: PrefetchedBytes,
}

impl PolicyStatus {
    pub(super) fn of(
        registration: &Registration,
        names: &[(PathBuf, String)],
        reports: Vec<ServiceReport>,
        ledger: &PrefetchLedger,
    ) -> Self {
        let namespace = &registration.origin().namespace;
        let status = registration.supervisor().status();
        let name = names
            .iter()
            .find(|(path, _)| path == namespace.root())
            .map(|(_, name)| name.clone());
        let files = reports.iter().map(|report| &*report.files);
        let (bytes, of_services) = ledger.totals(namespace.root(), files);
        let services = reports.into_iter().zip(of_services);
        let services = services.map(|(report, bytes)| ServiceStatus { report, bytes });
        Self {
            path: namespace.root().to_owned(),
            name: name.unwrap_or_default(),
            files: namespace.entries().len(),
            calls: status.calls,
            queued: status.queued,
            dropped: status.dropped,
            longest_call_ns: status.longest_call_ns,
            failure: status.failure.map(|error| error.to_string()),
            bytes,
            services: services.collect(),
        }
    }
}

/// The sum of all evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EvictionTotals {
    /// Number of lists that policies returned.
    pub lists: u64,
    /// The bytes of those lists.
    #[serde(flatten)]
    pub bytes: Evicted,
}

/// Memory usage of the runtime's scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryStatus {
    /// Bytes in use, including the page cache.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
    /// How often polling found memory short and requested evictions.
    pub pressure_polls: u64,
}

impl RuntimeStatus {
    /// The fraction of accessed bytes that were in the page cache; `None` if the source reports only misses.
    #[allow(clippy::cast_precision_loss)] // a ratio for people
    pub fn hit_rate(&self) -> Option<f64> {
        let EventCounts {
            touched_bytes,
            missed_bytes,
            ..
        } = self.events;
        (touched_bytes > 0)
            .then(|| 1.0 - missed_bytes.min(touched_bytes) as f64 / touched_bytes as f64)
    }

    /// The JSON document that [`query_status`](super::query_status) returns: the fields of this struct
    /// and [`hit_rate`](Self::hit_rate).
    pub fn document(&self) -> serde_json::Value {
        let mut document = serde_json::to_value(self).unwrap_or_default();
        document["hit_rate"] = self.hit_rate().into();
        document
    }

    /// The counters in the [exposition format](https://prometheus.io/docs/instrumenting/exposition_formats/) of Prometheus; of all
    /// runtimes of a machine: [`RunningRuntimes::prometheus`](super::RunningRuntimes::prometheus).
    pub fn prometheus(&self) -> String {
        prometheus::exposition(&[(self.pid, self.document())], &[])
    }
}
