//! Keys of the metadata, fields of a header's entries and files beside a checkpoint that speak of quantisation or name its
//! tensors.

use crate::base::error::{Error, ErrorKind, Result};
use crate::quant::scheme::{Context, is_rotation};
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

/// Adds what is not known. Metadata counts where weights are quantised.
pub(super) fn find(cx: &Context<'_>, is_quantised: bool, remarks: &mut Vec<String>) -> Result<()> {
    match cx.catalog.format {
        "safetensors" if is_quantised => metadata(cx, remarks)?,
        "gguf" | "pth" if is_quantised => keys(cx, remarks)?,
        _ => {}
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

/// Beginnings of keys of a GGUF that say how tensors were made, and of those among them that are known.
static GGUF: &[(&str, &[&str])] = &[
    ("quantize.", &["quantize.imatrix."]),
    ("comfy.gguf.", &[TRUE_SHAPE]),
];

/// The keys of shapes that opening reads, followed by the name of a tensor.
const TRUE_SHAPE: &str = "comfy.gguf.orig_shape.";

/// Keys by which the weights of a GGUF or of PyTorch may have been altered. Their other keys are the model's, and a state of
/// training has thousands.
fn keys(cx: &Context<'_>, remarks: &mut Vec<String>) -> Result<()> {
    let is_gguf = cx.catalog.format == "gguf";
    let before = remarks.len();
    for (key, value) in cx.catalog.metadata.iter() {
        cx.budget.steps(1 + key.len() as u64 / 16, WHAT)?;
        let is_unknown = GGUF.iter().any(|(start, known)| {
            let is_known = known.iter().any(|known| key.starts_with(known));
            is_gguf && key.starts_with(start) && !is_known
        });
        let shape = key.strip_prefix(TRUE_SHAPE).filter(|_| is_gguf);
        let is_missing = shape.is_some_and(|tensor| cx.position(tensor).is_none());
        // a shape is called after its tensor
        let is_rotation = shape.is_none() && is_rotation(key);
        if !(is_unknown || is_missing || is_rotation) || is_off(value) {
            continue;
        }
        let why = if is_missing {
            ", of a tensor that is not there,"
        } else {
            ""
        };
        remarks.push(format!("the key {}{why} of the metadata", quote(key)));
        if remarks.len() - before >= MAX_LISTED {
            break;
        }
    }
    Ok(())
}

/// Whether a value says that a setting is not in use.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::U64(0) | Value::I64(0) => true,
        Value::Text(text) => is_nothing(text),
        _ => false,
    }
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
