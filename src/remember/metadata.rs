//! What a checkpoint's metadata becomes in a safetensors header: texts.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::inspect::to_json;
use crate::metadata::Value;
use serde::{Serialize, Serializer};

/// Bytes of metadata that are carried over: a header may have 100 MB, and every reader parses it.
const MOST: usize = 64 << 20;

/// Keys and values for `__metadata__`: those of safetensors as they are; those of GGUF as `gguf.` and their
/// key, with the value as JSON (arrays whole).
pub(super) fn carried(checkpoint: &Checkpoint) -> Result<Vec<(String, String)>> {
    let catalog = checkpoint.catalog();
    let mut carried = vec![("format".to_owned(), "pt".to_owned())];
    let mut total = 0;
    for (key, value) in catalog.metadata.iter() {
        let pair = match (catalog.format, value) {
            ("safetensors", Value::Text(text)) if key == "format" => {
                carried[0].1 = text.to_string();
                continue;
            }
            ("safetensors", Value::Text(text)) => (key.to_owned(), text.to_string()),
            ("gguf", _) => {
                let whole = checkpoint.metadata(key)?.unwrap_or(Value::Null);
                (
                    format!("gguf.{key}"),
                    serde_json::to_string(&Whole(&whole)).expect("texts and numbers"),
                )
            }
            _ => (key.to_owned(), to_json(value).to_string()),
        };
        total += pair.0.len() + pair.1.len();
        if total > MOST {
            break;
        }
        carried.push(pair);
    }
    Ok(carried)
}

/// A value whose arrays are in memory, as JSON: what [`to_json`] makes of it, without the tree in between.
struct Whole<'v>(&'v Value);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bool(b) => s.serialize_bool(*b),
            Value::U64(n) => s.serialize_u64(*n),
            Value::I64(n) => s.serialize_i64(*n),
            Value::F32(n) if n.is_finite() => s.serialize_f32(*n),
            Value::F64(n) if n.is_finite() => s.serialize_f64(*n),
            Value::Text(text) => s.serialize_str(text),
            Value::List(list) => s.collect_seq(list.iter().map(Whole)),
            other => to_json(other).serialize(s),
        }
    }
}
