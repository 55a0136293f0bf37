//! The steps of a `tokenizer.json`: objects with a type, one in another.

use serde_json::Value as Json;

/// The steps of a sequence, or the one that is none. Sequences of sequences do not occur.
pub(super) fn parts<'j>(step: &'j Json, list: &str) -> Vec<&'j Json> {
    match (kind(step), step.get(list)) {
        ("", _) => Vec::new(),
        ("Sequence", Some(Json::Array(parts))) => parts.iter().collect(),
        _ => vec![step],
    }
}

/// The type of a step; empty if there is none.
pub(super) fn kind(step: &Json) -> &str {
    step.get("type").and_then(Json::as_str).unwrap_or("")
}
