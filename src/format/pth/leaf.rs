//! Values that are not tensors, as metadata.

use crate::error::Result;
use crate::format::pickle::heap::{Heap, Id, Value};
use crate::format::pickle::world::Global;
use crate::metadata;

/// Longer text is cut.
const TEXT: usize = 64 << 10;
/// Bytes are shown up to here.
const BYTES: usize = 32;

/// The metadata of a value that holds no others; `None` for containers and calls.
pub(super) fn leaf(heap: &Heap<'_>, id: Id) -> Result<Option<metadata::Value>> {
    let text = |text: String| metadata::Value::text(text);
    Ok(Some(match heap.get(id) {
        Value::None => metadata::Value::Null,
        Value::Bool(b) => metadata::Value::Bool(b),
        Value::Int(n) => metadata::Value::I64(n),
        Value::Float(x) => metadata::Value::F64(x),
        Value::Text(span) | Value::Big(span) => {
            let whole = heap.text(span);
            let shown = cut(whole);
            heap.budget().memory(shown.len() as u64, "the metadata")?;
            text(if shown.len() < whole.len() {
                format!("{shown}…")
            } else {
                shown.to_owned()
            })
        }
        Value::Bytes(span) => {
            let bytes = heap.bytes(span);
            let more = if bytes.len() > BYTES { "…" } else { "" };
            text(format!(
                "b\"{}{more}\"",
                bytes[..bytes.len().min(BYTES)].escape_ascii()
            ))
        }
        Value::Global(global) => text(match global {
            Global::Dtype(dtype) => format!("torch.{}", dtype.name()),
            Global::Torchao(class) => class.name().to_owned(),
            other => format!("{other:?}"),
        }),
        Value::Script(span) => text(cut(heap.text(span)).to_owned()),
        Value::Persistent(_) => text("a storage".to_owned()),
        Value::Tuple(_) | Value::List(_) | Value::Set(_) | Value::Dict { .. } | Value::Call(_) => {
            return Ok(None);
        }
    }))
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT)]
}

/// A number or short text, as Python's `str` would have it, more or less.
pub(super) fn plain_text(heap: &Heap<'_>, id: Id) -> String {
    match heap.get(id) {
        Value::None => "None".to_owned(),
        Value::Bool(b) => if b { "True" } else { "False" }.to_owned(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Text(span) | Value::Big(span) => {
            let text = heap.text(span);
            text[..text.floor_char_boundary(256)].to_owned()
        }
        _ => "?".to_owned(),
    }
}

/// Writes a dict key as a part of a name. `position` stands in for keys that are neither text nor number.
pub(super) fn write_key(heap: &Heap<'_>, key: Id, position: usize, path: &mut String) {
    use std::fmt::Write;
    let written = match heap.get(key) {
        Value::Text(span) | Value::Big(span) => {
            path.push_str(heap.text(span));
            Ok(())
        }
        Value::Int(n) => write!(path, "{n}"),
        Value::None | Value::Bool(_) | Value::Float(_) => {
            path.push_str(&plain_text(heap, key));
            Ok(())
        }
        Value::Global(Global::Dtype(dtype)) => write!(path, "torch.{}", dtype.name()),
        Value::Tuple(span) if heap.items(span).len() <= 8 => {
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

/// Length of a key's text, before it is written.
pub(super) fn key_len(heap: &Heap<'_>, key: Id) -> usize {
    match heap.get(key) {
        Value::Text(span) | Value::Big(span) => span.range().len(),
        _ => 32,
    }
}
