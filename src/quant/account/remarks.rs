//! Keys of the metadata, fields of a header's entries and files beside a checkpoint that speak of quantisation or name its
//! tensors.

use crate::base::error::{Error, ErrorKind, Result};
use crate::quant::scheme::Context;
use crate::read::catalog::{Value, quote};
use crate::read::json::{JsonReader, Tree};

use super::harmless;

const WHAT: &str = "the metadata";

/// Words that speak of quantisation.
static WORDS: &[&str] = &[
    "quant",
    "4bit",
    "4-bit",
    "8bit",
    "8-bit",
    "2bit",
    "2-bit",
    "3bit",
    "3-bit",
    "int4",
    "int8",
    "fp8",
    "fp4",
    "nf4",
    "mxfp",
    "awq",
    "gptq",
    "codec",
    "compress",
    "packed",
    "packing",
    "delta",
    "hadamard",
    "rotat",
    "codebook",
    "permut",
    "nntr",
    "weight_format",
];

/// Words of keys that may say how bytes are to be read.
static KEY_WORDS: &[&str] = &["format", "encod", "pack", "scheme", "bits"];

/// Longest value that is searched.
const MAX_VALUE: usize = 1 << 20;

/// Remarks of one kind that are listed.
const MAX_LISTED: usize = 8;

/// Adds what is not known.
pub(super) fn find(cx: &Context<'_>, remarks: &mut Vec<String>) -> Result<()> {
    if cx.catalog.format == "safetensors" {
        metadata(cx, remarks)?;
    }
    let fields = cx.catalog.extra_fields.iter().take(MAX_LISTED);
    remarks.extend(fields.map(|extra| {
        let (field, tensor) = (quote(&extra.field), quote(&extra.tensor));
        format!("the field {field} of tensor {tensor} in the header")
    }));
    let files = cx.sidecars.files.iter().take(MAX_LISTED);
    remarks.extend(files.map(|name| format!("the file {} beside it", quote(name))));
    Ok(())
}

fn metadata(cx: &Context<'_>, remarks: &mut Vec<String>) -> Result<()> {
    let before = remarks.len();
    for (key, value) in cx.catalog.metadata.iter() {
        let Value::Text(text) = value else {
            continue;
        };
        cx.budget.steps(
            1 + (key.len() + text.len().min(MAX_VALUE)) as u64 / 16,
            WHAT,
        )?;
        // `format` is the framework that wrote the file
        if harmless::is_description(key) || (key == "format" && !speaks(text)) {
            continue;
        }
        // torchao describes tensors that it has not quantised too
        let plain = text.trim() == r#"{"_type": "Tensor"}"#;
        if plain || cx.consumes_metadata(key) || is_nothing(text) {
            continue;
        }
        let lower = key.to_ascii_lowercase();
        if KEY_WORDS.iter().any(|word| lower.contains(word))
            || speaks(key)
            || speaks(text)
            || cx.position(key).is_some()
            || names_tensors(cx, text)?
        {
            let shown = &text[..text.floor_char_boundary(60)];
            remarks.push(format!("{}: {} of the metadata", quote(key), quote(shown)));
        }
        if remarks.len() - before >= MAX_LISTED {
            break;
        }
    }
    Ok(())
}

fn speaks(text: &str) -> bool {
    let text = text[..text.floor_char_boundary(4096)].to_ascii_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

fn is_nothing(text: &str) -> bool {
    let nothing = ["", "false", "none", "null", "{}", "[]", "no"];
    let text = text.trim();
    nothing.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether a text is a JSON object of which a key is the name of a tensor or module.
fn names_tensors(cx: &Context<'_>, text: &str) -> Result<bool> {
    if !text.trim_start().starts_with('{') || text.len() > MAX_VALUE {
        return Ok(false);
    }
    let _tree = cx.budget.scope();
    let reader = JsonReader::new(cx.budget, WHAT);
    let map = match reader.parse(text, Tree(&reader), |_| Error::unexplained("no JSON")) {
        Ok(serde_json::Value::Object(map)) => map,
        // a text that is no object names nothing
        Ok(_) => return Ok(false),
        Err(e) if matches!(e.kind(), ErrorKind::Unexplained(_)) => return Ok(false),
        Err(e) => return Err(e),
    };
    let is_named = |key: &String| {
        cx.position(key).is_some() || cx.position(&[key, ".weight"].concat()).is_some()
    };
    Ok(map.keys().any(is_named))
}
