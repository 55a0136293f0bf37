//! `--stats`: what was requested for the URLs of a run.

use serde_json::Value;

use crate::args::{FileArgs, OpenArgs};
#[cfg(feature = "remote")]
use crate::messages::message;

/// The requests, as a field of `--json`; `None` without `--stats`.
#[cfg(feature = "remote")]
pub(crate) fn document(opening: &OpenArgs) -> Option<Value> {
    let stats = opening.request_stats()?;
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    Some(serde_json::json!({
        "requests": stats.requests,
        "retries": stats.retries,
        "hedges": stats.hedges,
        "requested_nbytes": stats.requested,
        "received_nbytes": stats.received,
        "used_nbytes": stats.used,
        "uploaded_nbytes": stats.uploaded,
        "depth": stats.depth,
        "connections": stats.connections,
        "first_byte_seconds_median": seconds(stats.first_byte_median),
        "first_byte_seconds_p95": seconds(stats.first_byte_p95),
        "from_cache": stats.from_cache,
        "cached_headers": stats.cached_headers,
    }))
}

/// Adds what was requested to the document of a verb.
pub(crate) fn add_to(whole: &mut Value, opening: &OpenArgs) {
    if let Some(requests) = document(opening) {
        whole["requests"] = requests;
    }
}

/// Writes what was requested to standard error, with `--stats`.
#[cfg(feature = "remote")]
pub(crate) fn report(opening: &OpenArgs) {
    use crate::text::{ByteSize, plural};

    let Some(stats) = opening.request_stats() else {
        return;
    };
    let mut lines = vec![format!(
        "{}, {} of them in sequence, over {}; {} requested, {} received, {} used",
        plural(stats.requests, "request"),
        stats.depth,
        plural(stats.connections, "connection"),
        ByteSize(stats.requested),
        ByteSize(stats.received),
        ByteSize(stats.used)
    )];
    // counts that most runs do not have are left out
    if stats.uploaded > 0 {
        lines.push(format!("{} uploaded", ByteSize(stats.uploaded)));
    }
    if let (Some(median), Some(p95)) = (stats.first_byte_median, stats.first_byte_p95) {
        let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        lines.push(format!(
            "first byte after {:.1} ms, of 95 % after {:.1} ms; {} repeated after failures, {} because late",
            millis(median),
            millis(p95),
            stats.retries,
            stats.hedges
        ));
    }
    if stats.from_cache > 0 {
        lines.push(format!(
            "{} from the hub's cache on this machine",
            plural(stats.from_cache, "URL")
        ));
    }
    if stats.cached_headers > 0 {
        lines.push(format!(
            "{} from the cache of headers",
            plural(stats.cached_headers, "header")
        ));
    }
    for line in lines {
        // standard error: `--json` on standard output stays one document
        message!("stats: {line}");
    }
}

/// Says on standard error that headers are from an earlier opening.
#[cfg(feature = "remote")]
pub(crate) fn report_uncompared(files: &FileArgs) {
    use crate::text::plural;

    let count = files.uncompared_headers();
    if count > 0 {
        message!(
            "anamnesis: offline: {} from the cache, not compared with the server",
            plural(count, "header")
        );
    }
}

#[cfg(not(feature = "remote"))]
pub(crate) fn report_uncompared(_: &FileArgs) {}

#[cfg(not(feature = "remote"))]
pub(crate) fn document(_: &OpenArgs) -> Option<Value> {
    None
}

#[cfg(not(feature = "remote"))]
pub(crate) fn report(_: &OpenArgs) {}
