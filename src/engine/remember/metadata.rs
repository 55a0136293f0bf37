//! A checkpoint's metadata as strings, for a safetensors header.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::models::architectures::gguf_model;
use crate::models::conversion::Names;
use crate::plan::PLAN_ID_KEY;
use crate::read::catalog::metadata::{OF_GGUF, Value};
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;
use crate::read::format::gguf;
use serde::{Serialize, Serializer};

/// Bytes of metadata that are carried over from another format. A header may have 100 MB, and every reader parses it.
const MAX_METADATA: usize = 64 << 20;

/// Keys and values for `__metadata__`: the source's, unchanged, for safetensors; for GGUF with the prefix `gguf.` and the
/// value as JSON, arrays included. Texts of other formats are written as they are, and their other values as JSON: both are read by
/// schemes from a safetensors header.
///
/// If the outputs of a GGUF have the `names` of transformers, only texts about the model are left (`general.name`, author,
/// licence, origin): configuration and tokenizer are files of their own, numbers describe how the file was stored, and the
/// header of a vocabulary of 150 000 tokens would have 9.5 MB that every client parses.
///
/// `dequantised`: the dtype of the output's weights, where they are not copied as they are stored.
///
/// # Errors
/// Values that cannot be read, and more than [`MAX_METADATA`] from another format than safetensors.
pub(in crate::engine) fn safetensors_metadata(
    checkpoint: &Checkpoint,
    names: Names,
    dequantised: Option<Dtype>,
) -> Result<Vec<(String, String)>> {
    let catalog = checkpoint.catalog();
    // transformers refuses safetensors files whose metadata does not say `format`
    let mut carried = vec![("format".to_owned(), "pt".to_owned())];
    let described = names == Names::HuggingFace && gguf_model(checkpoint).is_some();
    let mut total = 0;
    for (key, value) in catalog.metadata.iter() {
        let pair = match (catalog.format, value) {
            ("safetensors", Value::Text(text)) if key == "format" => {
                carried[0].1 = text.to_string();
                continue;
            }
            // the id of the plan that made the source
            ("safetensors", _) if key == PLAN_ID_KEY => continue,
            ("safetensors", Value::Text(text)) => (key.to_owned(), text.to_string()),
            ("gguf", value)
                if described
                    && !(key.starts_with("general.") && matches!(value, Value::Text(_))) =>
            {
                continue;
            }
            ("gguf", _) => {
                let whole = checkpoint.metadata(key)?.unwrap_or(Value::Null);
                (
                    [OF_GGUF, key].concat(),
                    serde_json::to_string(&Direct(&whole))
                        .expect("strings and numbers serialise to JSON"),
                )
            }
            (_, Value::Text(text)) => (key.to_owned(), text.to_string()),
            _ => (
                key.to_owned(),
                serde_json::to_string(value).expect("strings and numbers serialise to JSON"),
            ),
        };
        let mut pair = pair;
        if let Some(number) = dequantised.and_then(|dtype| file_type(&pair.0, dtype)) {
            number.clone_into(&mut pair.1);
        }
        total += pair.0.len() + pair.1.len();
        // texts that a header has had are written, and the whole header is compared with the reader's limits
        if total > MAX_METADATA && catalog.format != "safetensors" {
            let what = format!(
                "{} and the keys before it have more than {} MiB of metadata as text, for a header that readers refuse from 100 MB on: take the longest keys out of a copy (`edit --unset`)",
                quote(key),
                MAX_METADATA >> 20
            );
            return Err(Error::unsupported(what));
        }
        carried.push(pair);
    }
    Ok(carried)
}

/// The value of a key that states the quantisation of a GGUF, in an output whose weights are of this dtype: a number of llama.cpp's
/// `llama_ftype`. `None` for other keys, and for a dtype that has none.
pub(in crate::engine) fn file_type(key: &str, dtype: Dtype) -> Option<&'static str> {
    if key.strip_prefix(OF_GGUF).unwrap_or(key) != gguf::FILE_TYPE {
        return None;
    }
    Some(match dtype {
        Dtype::F32 => "0",
        Dtype::F16 => "1",
        Dtype::BF16 => "32",
        // dequantising has no others
        _ => return None,
    })
}

/// Serialises a value with the digits of an F32 as they are, not through an F64.
struct Direct<'v>(&'v Value);

impl Serialize for Direct<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bool(b) => s.serialize_bool(*b),
            Value::U64(n) => s.serialize_u64(*n),
            Value::I64(n) => s.serialize_i64(*n),
            // streamed, not built as a tree: a tokenizer of 7 MB took 0.1 to 0.25 s of a conversion as values, tree
            // and text (experiment 18)
            Value::F32(n) if n.is_finite() => s.serialize_f32(*n),
            Value::F64(n) if n.is_finite() => s.serialize_f64(*n),
            Value::Text(text) => s.serialize_str(text),
            Value::List(list) => s.collect_seq(list.iter().map(Direct)),
            other => other.serialize(s),
        }
    }
}
