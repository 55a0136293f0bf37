//! Converts the values of a pickle that are not tensors to metadata and to parts of dotted names.

use crate::base::error::{Error, Result};
use crate::read::catalog::metadata;
use crate::read::format::pickle::globals::Global;
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

/// Longer text is truncated, in bytes.
const TEXT_MAX: usize = 64 << 10;
/// Number of bytes that are shown of a byte string.
const BYTES_MAX: usize = 32;

/// The metadata of a scalar, text or name; `None` for containers and calls.
pub(super) fn leaf(heap: &ValueHeap<'_>, id: ValueId) -> Result<Option<metadata::Value>> {
    let text = |text: String| {
        heap.budget().text(text.len(), "the metadata")?;
        Ok::<_, Error>(metadata::Value::text(text))
    };
    Ok(Some(match heap.get(id) {
        PickleValue::None => metadata::Value::Null,
        PickleValue::Bool(b) => metadata::Value::Bool(b),
        PickleValue::Int(n) => metadata::Value::I64(n),
        PickleValue::Float(x) => metadata::Value::F64(x),
        PickleValue::Text(span) | PickleValue::BigInt(span) => {
            let whole = heap.text(span);
            let shown = cut(whole);
            // each use is charged: one text can be the value of many keys
            text(if shown.len() < whole.len() {
                format!("{shown}…")
            } else {
                shown.to_owned()
            })?
        }
        PickleValue::Bytes(span) => {
            let bytes = heap.bytes(span);
            let more = if bytes.len() > BYTES_MAX { "…" } else { "" };
            text(format!(
                "b\"{}{more}\"",
                bytes[..bytes.len().min(BYTES_MAX)].escape_ascii()
            ))?
        }
        PickleValue::Global(global) => text(match global {
            Global::Dtype(dtype) => format!("torch.{}", dtype.name()),
            Global::Torchao(class) => class.name().to_owned(),
            other => format!("{other:?}"),
        })?,
        PickleValue::ScriptClass(span) | PickleValue::OpaqueGlobal(span) => {
            text(cut(heap.text(span)).to_owned())?
        }
        PickleValue::Persistent(_) => text("a storage".to_owned())?,
        PickleValue::Tuple(_)
        | PickleValue::List(_)
        | PickleValue::Set(_)
        | PickleValue::Dict { .. }
        | PickleValue::Call(_) => {
            return Ok(None);
        }
    }))
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

/// A scalar or the beginning of a text, spelt as Python's `str` spells it; `?` for other values.
pub(super) fn plain_text(heap: &ValueHeap<'_>, id: ValueId) -> String {
    match heap.get(id) {
        PickleValue::None => "None".to_owned(),
        PickleValue::Bool(b) => if b { "True" } else { "False" }.to_owned(),
        PickleValue::Int(n) => n.to_string(),
        PickleValue::Float(x) => x.to_string(),
        PickleValue::Text(span) | PickleValue::BigInt(span) => {
            let text = heap.text(span);
            text[..text.floor_char_boundary(256)].to_owned()
        }
        _ => "?".to_owned(),
    }
}

/// Appends a dict key to a dotted name. A key that has no short text is written as `#` and its position.
pub(super) fn write_key(heap: &ValueHeap<'_>, key: ValueId, position: usize, path: &mut String) {
    use std::fmt::Write;
    // keys are joined as PyTorch's own state dicts are; keys of other types are spelt as Python prints them
    let written = match heap.get(key) {
        PickleValue::Text(span) | PickleValue::BigInt(span) => {
            path.push_str(heap.text(span));
            Ok(())
        }
        PickleValue::Int(n) => write!(path, "{n}"),
        // as Python's `str` spells them
        PickleValue::None | PickleValue::Bool(_) | PickleValue::Float(_) => {
            path.push_str(&plain_text(heap, key));
            Ok(())
        }
        PickleValue::Global(Global::Dtype(dtype)) => write!(path, "torch.{}", dtype.name()),
        // keys such as `(0, 'weight')` are spelt out; longer tuples would be names of any length
        PickleValue::Tuple(span) if heap.items(span).len() <= 8 => {
            let parts: Vec<String> = heap
                .items(span)
                .iter()
                .map(|&part| plain_text(heap, part))
                .collect();
            write!(path, "({})", parts.join(", "))
        }
        _ => write!(path, "#{position}"),
    };
    written.expect("writing to a string");
}

/// Like [`write_key`], in a form that no other key has: text that contains a dot, or that could be a key of another type, is
/// quoted. Unquoted are identifiers.
pub(super) fn write_quoted_key(
    heap: &ValueHeap<'_>,
    key: ValueId,
    position: usize,
    path: &mut String,
) {
    let PickleValue::Text(span) = heap.get(key) else {
        return write_key(heap, key, position, path);
    };
    let text = heap.text(span);
    let is_identifier = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !matches!(text, "None" | "True" | "False" | "inf" | "nan" | "NaN");
    if is_identifier {
        return path.push_str(text);
    }
    path.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            path.push('\\');
        }
        path.push(c);
    }
    path.push('"');
}

/// Length of the text of a key, to charge it before it is written; an estimate for keys that are not text.
pub(super) fn key_len(heap: &ValueHeap<'_>, key: ValueId) -> usize {
    match heap.get(key) {
        PickleValue::Text(span) | PickleValue::BigInt(span) => span.range().len(),
        _ => 32,
    }
}
