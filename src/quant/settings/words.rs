//! The words and values by which a setting decides: those that say that stored numbers are not the weights themselves, and
//! those that say nothing.

use serde_json::Value;

use crate::read::catalog::metadata;

/// Whether a name says that stored numbers are not the weights themselves. It is asked of most keys and tensors: nothing is
/// copied, and the words, of which no two begin alike, are found by their first two letters.
pub(crate) fn is_altering(name: &str) -> bool {
    let name = name.as_bytes();
    name.array_windows::<2>().enumerate().any(|(at, pair)| {
        let word: &[u8] = match &[pair[0] | 0x20, pair[1] | 0x20] {
            b"ro" => b"rotat",
            b"tr" => b"transform",
            b"pe" => b"permut",
            b"co" => b"codebook",
            b"of" => b"offset",
            b"ha" => b"hadamard",
            b"sp" => b"spinquant",
            b"qu" => b"quarot",
            _ => return false,
        };
        let part = name.get(at..at + word.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
}

/// Whether a value is null, false or empty.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => is_nothing_in(text),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// Whether a value says no, as some writers do in a text or a number. Null says nothing.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::String(text) => text.eq_ignore_ascii_case("false"),
        other => other.as_f64() == Some(0.0),
    }
}

/// Whether a value of the metadata says that a setting is not in use. 0 is written for false there.
pub(crate) fn says_nothing(value: &metadata::Value) -> bool {
    match value {
        metadata::Value::Null | metadata::Value::Bool(false) => true,
        metadata::Value::U64(0) | metadata::Value::I64(0) => true,
        metadata::Value::Text(text) => is_nothing_in(text),
        _ => false,
    }
}

fn is_nothing_in(text: &str) -> bool {
    let nothing = ["", "false", "none", "null", "{}", "[]", "no"];
    let text = text.trim();
    nothing.iter().any(|word| text.eq_ignore_ascii_case(word))
}
