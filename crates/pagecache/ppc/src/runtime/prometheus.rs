//! The status of runtimes in Prometheus's text format.
//!
//! Samples of one metric follow one another, of whatever runtime they are, as the format requires. They are read from the status
//! documents, of which each comes from another process: what is not there, or is no number, is left out.

use std::fmt::Write;

use serde_json::Value;

/// A metric: the part of its name after the prefix, its type, its help, and where its value is in a document.
type Metric = (&'static str, &'static str, &'static str, &'static str);

const PREFIX: &str = "anamnesis_ppc_";
const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// Metrics of a runtime.
const OF_RUNTIME: [Metric; 15] = [
    ("uptime_seconds", GAUGE, "Age of the runtime.", "/uptime_s"),
    (
        "events_total",
        COUNTER,
        "Events received from the event source.",
        "/events/received",
    ),
    (
        "events_lost_total",
        COUNTER,
        "Events that the event source lost.",
        "/events/lost",
    ),
    (
        "misses_total",
        COUNTER,
        "Accesses that missed the page cache.",
        "/events/misses",
    ),
    (
        "missed_bytes_total",
        COUNTER,
        "Bytes of accesses that missed the page cache.",
        "/events/missed_bytes",
    ),
    (
        "touched_bytes_total",
        COUNTER,
        "Bytes of all reported accesses.",
        "/events/touched_bytes",
    ),
    (
        "prefetched_bytes_total",
        COUNTER,
        "Bytes prefetched.",
        "/prefetch/bytes_read",
    ),
    (
        "resident_bytes_total",
        COUNTER,
        "Bytes not prefetched because they were resident.",
        "/prefetch/bytes_skipped",
    ),
    (
        "prefetch_interrupts_total",
        COUNTER,
        "Prefetch lists that were replaced or interrupted.",
        "/prefetch/interrupts",
    ),
    (
        "prefetch_errors_total",
        COUNTER,
        "Reads that failed.",
        "/prefetch/errors",
    ),
    (
        "evicted_bytes_total",
        COUNTER,
        "Bytes evicted.",
        "/evict/freed",
    ),
    (
        "evict_left_bytes_total",
        COUNTER,
        "Bytes that an eviction left in memory.",
        "/evict/remaining",
    ),
    (
        "memory_pressure_total",
        COUNTER,
        "Polls that found memory short.",
        "/memory/pressure_polls",
    ),
    (
        "memory_used_bytes",
        GAUGE,
        "Memory in use, including the page cache.",
        "/memory/used",
    ),
    (
        "memory_limit_bytes",
        GAUGE,
        "Memory limit.",
        "/memory/limit",
    ),
];

/// Metrics of a policy.
const OF_POLICY: [Metric; 5] = [
    (
        "policy_files",
        GAUGE,
        "Files of the policy's directory.",
        "/files",
    ),
    (
        "policy_calls_total",
        COUNTER,
        "Calls of the policy that returned.",
        "/calls",
    ),
    (
        "policy_calls_dropped_total",
        COUNTER,
        "Calls of the policy that were dropped.",
        "/dropped",
    ),
    (
        "policy_prefetched_bytes_total",
        COUNTER,
        "Bytes prefetched for the policy.",
        "/prefetched",
    ),
    (
        "policy_wasted_bytes_total",
        COUNTER,
        "Prefetched bytes that had left memory before they were read.",
        "/wasted",
    ),
];

/// Metrics of a model that a policy prefetches.
const OF_MODEL: [Metric; 4] = [
    (
        "model_wanted_bytes",
        GAUGE,
        "Bytes that the workers of the model read.",
        "/wanted",
    ),
    (
        "model_recorded_bytes",
        GAUGE,
        "Bytes of accesses that were recorded.",
        "/recorded",
    ),
    (
        "model_prefetched_bytes_total",
        COUNTER,
        "Bytes of the model that were prefetched.",
        "/prefetched",
    ),
    (
        "model_wasted_bytes_total",
        COUNTER,
        "Prefetched bytes of the model that had left memory before they were read.",
        "/wasted",
    ),
];

/// The subject of the samples of a metric: labels, and the part of a document that has their values.
struct LabelledPart<'d> {
    labels: String,
    part: &'d Value,
}

/// The metrics of these runtimes, and which runtimes do not answer.
pub(super) fn exposition(documents: &[(u32, Value)], unresponsive: &[u32]) -> String {
    let runtimes: Vec<LabelledPart<'_>> = documents
        .iter()
        .map(|(pid, part)| LabelledPart {
            labels: format!("pid=\"{pid}\""),
            part,
        })
        .collect();
    let policies: Vec<LabelledPart<'_>> = runtimes
        .iter()
        .flat_map(|runtime| {
            parts_of(
                runtime,
                "policies",
                &[("path", "directory"), ("name", "policy")],
            )
        })
        .collect();
    let models: Vec<LabelledPart<'_>> = policies
        .iter()
        .flat_map(|policy| parts_of(policy, "services", &[("model", "model")]))
        .collect();
    let mut text = String::new();
    let up = documents.iter().map(|(pid, _)| (pid, 1));
    // a runtime that hangs shows as 0, where a missing sample would look like one that was stopped on purpose
    let up = up.chain(unresponsive.iter().map(|pid| (pid, 0)));
    let up = up.map(|(pid, value)| (format!("pid=\"{pid}\""), value.into()));
    family(
        &mut text,
        ("up", GAUGE, "Whether the runtime responds.", ""),
        up,
    );
    // by metric and not by runtime: the format wants all samples of a metric together
    for metric in OF_RUNTIME {
        values(&mut text, metric, &runtimes);
    }
    let registered = policies.iter().map(|policy| {
        let registered = u64::from(policy.part["failure"].is_null());
        (policy.labels.clone(), registered.into())
    });
    let help = "Whether the policy is registered; 0 if it failed.";
    family(
        &mut text,
        ("policy_registered", GAUGE, help, ""),
        registered,
    );
    for metric in OF_POLICY {
        values(&mut text, metric, &policies);
    }
    let phases = models.iter().map(|model| {
        let phase = label(model.part["phase"].as_str().unwrap_or_default());
        (format!("{},phase=\"{phase}\"", model.labels), 1.into())
    });
    let help = "The phase of the model: 1 for the current one.";
    family(&mut text, ("model_phase", GAUGE, help, ""), phases);
    for metric in OF_MODEL {
        values(&mut text, metric, &models);
    }
    text
}

/// The elements of an array, with the labels of what it belongs to and with labels from their fields.
fn parts_of<'d>(
    of: &LabelledPart<'d>,
    array: &str,
    fields: &[(&str, &str)],
) -> Vec<LabelledPart<'d>> {
    let parts = of.part[array].as_array().into_iter().flatten();
    parts
        .map(|part| {
            let mut labels = of.labels.clone();
            for (field, name) in fields {
                let value = label(part[field].as_str().unwrap_or_default());
                let _ = write!(labels, ",{name}=\"{value}\""); // writing to a string cannot fail
            }
            LabelledPart { labels, part }
        })
        .collect()
}

/// Appends a metric with the values of these parts that are numbers.
fn values(text: &mut String, metric: Metric, parts: &[LabelledPart<'_>]) {
    let samples = parts.iter().filter_map(|labelled| {
        let value = labelled.part.pointer(metric.3)?.as_number()?;
        Some((labelled.labels.clone(), value.clone()))
    });
    family(text, metric, samples);
}

/// Appends a metric with its samples, if there are any.
fn family(
    text: &mut String,
    (name, kind, help, _): Metric,
    samples: impl Iterator<Item = (String, serde_json::Number)>,
) {
    for (number, (labels, value)) in samples.enumerate() {
        // writing to a string cannot fail
        // a metric without samples has no help either, so that an empty status is an empty text
        if number == 0 {
            let _ = writeln!(text, "# HELP {PREFIX}{name} {help}");
            let _ = writeln!(text, "# TYPE {PREFIX}{name} {kind}");
        }
        let _ = writeln!(text, "{PREFIX}{name}{{{labels}}} {value}");
    }
}

/// A label's value, between quotes.
fn label(value: &str) -> String {
    let mut label = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            // the three characters that the format escapes; all others stand for themselves
            '\\' => label.push_str("\\\\"),
            '"' => label.push_str("\\\""),
            '\n' => label.push_str("\\n"),
            c => label.push(c),
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_of_all_runtimes_are_grouped_by_metric() {
        let service = |model: &str, phase: &str| json!({"model": model, "phase": phase, "wanted": 7, "recorded": 0, "prefetched": 6, "wasted": 5});
        let first = json!({
            "uptime_s": 1.5, "events": {"misses": 3},
            "policies": [
                {"path": "/a\"\\\n", "name": "maio", "failure": null, "prefetched": 9,
                 "services": [service("x", "following"), service("", "recording")]},
                {"path": "/b", "name": "eager", "failure": "late", "prefetched": 1, "services": []},
            ],
        });
        let second = json!({"events": {"misses": 4}, "memory": {"used": "many"}});
        let text = exposition(&[(1, first), (2, second)], &[3]);
        let samples = |name: &str| -> Vec<&str> {
            let start = format!("anamnesis_ppc_{name}");
            let all = text.lines().filter_map(|line| line.strip_prefix(&*start));
            all.collect()
        };
        assert_eq!(
            samples("up{"),
            ["pid=\"1\"} 1", "pid=\"2\"} 1", "pid=\"3\"} 0"]
        );
        assert_eq!(samples("misses_total{"), ["pid=\"1\"} 3", "pid=\"2\"} 4"]);
        assert_eq!(samples("uptime_seconds{"), ["pid=\"1\"} 1.5"]);
        assert_eq!(samples("memory_used_bytes"), <[&str; 0]>::default());
        let a = "pid=\"1\",directory=\"/a\\\"\\\\\\n\",policy=\"maio\"";
        let b = "pid=\"1\",directory=\"/b\",policy=\"eager\"";
        assert_eq!(
            samples("policy_registered{"),
            [format!("{a}}} 1"), format!("{b}}} 0")]
        );
        assert_eq!(
            samples("model_phase{"),
            [
                format!("{a},model=\"x\",phase=\"following\"}} 1"),
                format!("{a},model=\"\",phase=\"recording\"}} 1")
            ]
        );
        assert_eq!(samples("model_wanted_bytes{").len(), 2);
        // each metric is described once, directly in front of its samples
        let mut described = std::collections::BTreeSet::new();
        let mut current = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().unwrap();
                assert!(described.insert(current), "{line}");
            } else if !line.starts_with('#') {
                assert_eq!(line.split('{').next(), Some(current));
            }
        }
    }
}
