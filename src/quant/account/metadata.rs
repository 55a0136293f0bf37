//! Keys of the metadata that speak of quantisation, that name tensors, or that stand on the stem of a weight.
//!
//! A header of safetensors has a few keys, which the writer of the weights has chosen. A GGUF has the keys of a model and its
//! tokenizer too, and a pickle the settings of a whole state of training: there a key counts by narrower words.

use std::borrow::Cow;

use crate::base::error::{Error, ErrorKind, Result};
use crate::quant::scheme::{COMFYUI_HEADER, Context};
use crate::quant::settings::{is_rotation, is_short_for_altering, says_nothing};
use crate::read::catalog::metadata::{OF_GGUF, OF_SAFETENSORS};
use crate::read::catalog::{Value, quote};
use crate::read::json::{JsonReader, Tree};

use super::dictionaries::{MAX_INNER, containers, is_part};
use super::distant_scales::is_scale_of_all;
use super::gguf_keys::GgufKeys;
use super::harmless;
use super::leftovers::Stems;
use super::parallel_mappings::ParallelMappings;
use super::searched_words::{SearchedText, SearchedWord, word};
use super::tensor_claim::{Refusals, TensorClaim, add, is_unscaled};

const WHAT: &str = "the metadata";

/// Words of which each name of a rotation has one.
static ALTERING: &[SearchedWord] = &[
    word("rotat"),
    word("transform"),
    word("hadamard"),
    word("spinquant"),
    word("quarot"),
    word("rht"),
    word("permut"),
    word("codebook"),
    word("offset"),
];

static QUANT: &[SearchedWord] = &[word("quant")];

/// Words that speak of quantisation, beside `quant`.
static METHODS: &[SearchedWord] = &[
    word("4bit"),
    word("4-bit"),
    word("8bit"),
    word("8-bit"),
    word("2bit"),
    word("2-bit"),
    word("3bit"),
    word("3-bit"),
    word("int4"),
    word("int8"),
    word("fp8"),
    word("fp4"),
    word("nf4"),
    word("mxfp"),
    word("awq"),
    word("gptq"),
    word("hadamard"),
    word("nntr"),
    word("weight_format"),
    word("repack"),
];

/// Names of types, which say nothing of the weights as the last part of a GGUF's key.
static TYPES: &[&str] = &["int8", "uint8", "int4", "uint4"];

/// Words that speak of stored bytes where the writer of weights has them, and of much else in the settings of a model.
static CODINGS: &[SearchedWord] = &[
    word("codec"),
    word("compress"),
    word("packed"),
    word("packing"),
    word("delta"),
    word("rotat"),
    word("codebook"),
    word("permut"),
    word("layout"),
    word("sparse"),
];

/// Words of keys that may say how bytes are to be read.
static KEY_WORDS: &[SearchedWord] = &[
    word("format"),
    word("encod"),
    word("pack"),
    word("scheme"),
    word("bits"),
];

/// Words of keys in a header of safetensors that say how bytes lie, or that numbers are scaled.
static PLACES: &[SearchedWord] = &[
    word("nibble"),
    word("transpos"),
    word("swizzl"),
    word("endian"),
    word("_order"),
    word("scale"),
    word("absmax"),
    word("multiplier"),
    word("zero_point"),
];

/// Values of `format`, which names the framework that wrote a file.
static FRAMEWORKS: &[&str] = &[
    "pt",
    "pth",
    "ckpt",
    "torch",
    "pytorch",
    "tf",
    "flax",
    "jax",
    "np",
    "numpy",
    "mlx",
    "paddle",
    "safetensors",
    "diffusers",
];

/// Namespaces of a GGUF, beside the one of its architecture, whose keys are no writer's of quantised weights.
static NAMESPACES: &[&str] = &["general.", "tokenizer.", "split.", "adapter.", "quantize."];

/// Namespaces of converters, whose keys say how tensors are stored, and the keys that opening reads.
static CONVERTERS: &[(&str, &str)] = &[("comfy.gguf.", "comfy.gguf.orig_shape.")];

/// The key of the version of ggml's types, and the version that is known, also as a text in a header of safetensors.
const GGML_VERSION: (&str, Value, &str) = ("general.quantization_version", Value::U64(2), "2");

/// Longest value that is searched.
const MAX_VALUE: usize = 1 << 20;

/// Remarks that are listed.
const MAX_LISTED: usize = 8;

/// Sections of a configuration, of which a pickle holds one as a dictionary. Weights are not read by it.
static SECTIONS: &[&str] = &[
    "quantization_config",
    "quantize_config",
    "quant_config",
    COMFYUI_HEADER,
];

/// The findings in the metadata.
#[derive(Default)]
pub(super) struct MetadataFindings {
    /// Keys that are not known.
    pub(super) remarks: Vec<String>,
    /// A key that all weights should be read by.
    pub(super) deciding: Option<String>,
    /// Weights with values beside them that they should be read by.
    pub(super) values: Refusals,
}

/// The keys that are not known.
pub(super) fn find(cx: &Context<'_>, slots: &[TensorClaim]) -> Result<MetadataFindings> {
    let mut found = MetadataFindings::default();
    let format = cx.catalog.format;
    let own = MetadataKeys::of(cx, format)?;
    // keys that came from the other format are judged as its own
    let (prefix, other) = match format {
        "gguf" => (OF_SAFETENSORS, "safetensors"),
        _ => (OF_GGUF, "gguf"),
    };
    let is_carried =
        |key: &str| ["gguf", "safetensors"].contains(&format) && key.starts_with(prefix);
    let mut keys = cx.catalog.metadata.iter();
    let carried = keys.any(|(key, _)| is_carried(key));
    let carried = carried.then(|| MetadataKeys::of(cx, other)).transpose()?;
    let is_pickle = cx.catalog.format == "pth";
    let (mut stems, mut modules, mut mappings, mut left) = (None, None, None, MAX_LISTED);
    for (key, value) in cx.catalog.metadata.iter() {
        let text = text_of(value);
        let bytes = key.len() + text.len().min(MAX_VALUE);
        cx.budget.steps(1 + bytes as u64 / 16, WHAT)?;
        let (metadata, name) = match (&carried, key.strip_prefix(prefix)) {
            (Some(carried), Some(name)) => (carried, name),
            _ => (&own, key),
        };
        let is_version = name == GGML_VERSION.0;
        if (says_nothing(value) && !is_version)
            || cx.consumes_metadata(key)
            || metadata.is_known(name, value)
        {
            continue;
        }
        let lower_key = lower(name);
        let words = SearchedText::new(&lower_key);
        let mut is_evidence = metadata.speaks(words, text)
            || (words.has(ALTERING) && is_rotation(name))
            || is_version
            || metadata.is_of_fork(name, value)
            || (!metadata.is_of_model(name) && names_tensor(cx, key))
            || names_tensors(cx, text)?;
        let is_section = is_pickle
            && key.split('.').any(|part| SECTIONS.contains(&part))
            && cx.config.is_empty();
        is_evidence |= is_section;
        // most files have no key that could be on a stem: then no list of stems is made
        let may_be_part = is_pickle && key.contains('.') && is_part(&lower_key);
        if (!is_evidence || may_be_part) && key.contains('.') && !metadata.is_of_model(name) {
            let stems = match &stems {
                Some(stems) => stems,
                None => stems.insert(Stems::of(cx, slots)?),
            };
            let owner = stems.owner(cx, key)?;
            let owner = owner.filter(|(_, rest)| {
                let has_adapter = super::leftovers::has_adapter(cx, key, rest);
                !harmless::explains_itself(rest, 1, has_adapter)
            });
            is_evidence |= owner.is_some() || stems.has(key);
            // a scale or a marker that is a number or a text, where others store a tensor
            if let Some((weight, _)) = owner.filter(|(_, rest)| is_pickle && is_part(rest)) {
                let why = format!(
                    "{}{} beside it is no tensor, and is not read",
                    quote(key),
                    shown(value)
                );
                add(cx, &mut found.values, weight, why)?;
                continue;
            }
        }
        if !is_evidence && is_pickle {
            // the scale `scales.X.weight` of `X.weight`
            let mut weight = None;
            if may_be_part {
                let mappings = match &mappings {
                    Some(mappings) => mappings,
                    None => mappings.insert(ParallelMappings::of(cx, slots)?),
                };
                weight = mappings.owner(cx, key)?;
            }
            if weight.is_none() && key.contains('.') {
                // a value beside the codes of a weight, in the same dictionary or in one inside of it
                let modules = match &modules {
                    Some(modules) => modules,
                    None => modules.insert(containers(cx, slots)?),
                };
                let mut around = key.rmatch_indices('.').take(MAX_INNER);
                let inner = around.find_map(|(end, _)| modules.get(&key[..end]).copied());
                is_evidence = inner.is_some();
                weight = inner.filter(|_| is_part(&lower_key));
            } else if weight.is_none() {
                is_evidence = is_scale_of_all(key) && slots.iter().any(is_unscaled);
            }
            if let Some(weight) = weight {
                let why = format!(
                    "{}{} is no tensor, and is not read",
                    quote(key),
                    shown(value)
                );
                add(cx, &mut found.values, weight, why)?;
                continue;
            }
        }
        if is_evidence {
            let tensor = read_by_opening(key);
            let why = if tensor.is_some_and(|tensor| cx.position(tensor).is_none()) {
                " (no tensor has this name)"
            } else {
                ""
            };
            let (key, value) = (quote(key), shown(value));
            let text = format!("{key}{value} of the metadata{why}");
            if is_section && found.deciding.is_none() {
                found.deciding = Some(text);
                continue;
            }
            found.remarks.push(text);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    let mut named: Vec<&str> = Vec::new();
    for (key, _) in &cx.catalog.differing_values {
        cx.budget.steps(1 + key.len() as u64 / 16, WHAT)?;
        // markers of other layers are read (`markers.rs`)
        let is_read = &**key == COMFYUI_HEADER;
        let is_first = !named.contains(&&**key);
        if left > 0 && !is_read && is_first && own.speaks(SearchedText::new(&lower(key)), "") {
            found.remarks.push(format!(
                "{}, whose value differs between the files,",
                quote(key)
            ));
            named.push(key);
            left -= 1;
        }
    }
    Ok(found)
}

/// The keys of a format.
struct MetadataKeys<'x, 'c> {
    cx: &'x Context<'c>,
    format: &'static str,
    /// The namespace of a GGUF's architecture.
    architecture: Option<String>,
    gguf: Option<GgufKeys<'c>>,
}

impl<'x, 'c> MetadataKeys<'x, 'c> {
    fn of(cx: &'x Context<'c>, format: &'static str) -> Result<Self> {
        const ARCHITECTURE: &str = "general.architecture";
        let is_gguf = format == "gguf";
        let metadata = &cx.catalog.metadata;
        let name = match format == cx.catalog.format {
            true => metadata.text(ARCHITECTURE),
            // a JSON text
            false => metadata
                .text(&[OF_GGUF, ARCHITECTURE].concat())
                .map(|text| text.trim_matches('"')),
        };
        let architecture = name.filter(|_| is_gguf).map(|name| [name, "."].concat());
        let gguf = is_gguf.then(|| GgufKeys::of(cx, name)).transpose()?;
        Ok(Self {
            cx,
            format,
            architecture,
            gguf,
        })
    }

    /// Whether a key of a GGUF is none of a model.
    fn is_of_fork(&self, key: &str, value: &Value) -> bool {
        let gguf = self.gguf.as_ref();
        gguf.is_some_and(|keys| !keys.are_of_model(key, value))
    }

    /// Whether a key, or its value, is known.
    fn is_known(&self, key: &str, value: &Value) -> bool {
        let text = text_of(value);
        let is_framework = || {
            FRAMEWORKS
                .iter()
                .any(|known| text.eq_ignore_ascii_case(known))
        };
        // torchao describes tensors that it has not quantised too
        let is_plain = text.trim() == r#"{"_type": "Tensor"}"#;
        is_plain
            || harmless::is_description(key)
            || (key == "format" && is_framework())
            || (key == GGML_VERSION.0 && (*value == GGML_VERSION.1 || text == GGML_VERSION.2))
            // a shape is called after its tensor, which must be there
            || (matches!(value, Value::Array(_))
                && read_by_opening(key).is_some_and(|tensor| self.cx.position(tensor).is_some()))
    }

    /// Whether a key of a GGUF is a model's.
    fn is_of_model(&self, key: &str) -> bool {
        let own = self.architecture.as_deref();
        let mut known = NAMESPACES.iter().copied().chain(own);
        self.format == "gguf" && known.any(|start| key.starts_with(start))
    }

    fn speaks(&self, key: SearchedText<'_>, text: &str) -> bool {
        match self.format {
            "gguf" => {
                let is_converter = CONVERTERS
                    .iter()
                    .any(|(start, _)| key.text().starts_with(start));
                let is_other = || !self.is_of_model(key.text());
                let named = key.text().rsplit_once('.');
                let named = named.filter(|(_, last)| TYPES.contains(last));
                let named = named.map_or(key, |(front, _)| SearchedText::new(front));
                is_converter
                    || names(named)
                    || (is_other() && (key.has(KEY_WORDS) || key.has(CODINGS)))
            }
            // a key inside of another is a setting of the run that trained the model
            "pth" if key.text().contains('.') => names(key),
            "pth" => names(key) || key.has(KEY_WORDS) || names(SearchedText::new(&lower(text))),
            _ => {
                let text = lower(text);
                let says = |text: SearchedText<'_>| {
                    text.has(QUANT) || text.has(METHODS) || text.has(CODINGS)
                };
                key.has(KEY_WORDS)
                    || key.has(PLACES)
                    || is_short_for_altering(key.text())
                    || says(key)
                    || says(SearchedText::new(&text))
            }
        }
    }
}

/// Whether a text names quantisation or a method of it.
fn names(text: SearchedText<'_>) -> bool {
    (text.has(QUANT) && is_of_quantisation(text.text())) || text.has(METHODS)
}

/// The tensor that a key which opening reads is about.
fn read_by_opening(key: &str) -> Option<&str> {
    let mut rows = CONVERTERS.iter();
    rows.find_map(|(_, read)| key.strip_prefix(read))
}

/// Whether a text speaks of quantisation, and not of the vector quantisers of a model.
fn is_of_quantisation(text: &str) -> bool {
    let mut found = text
        .match_indices("quant")
        .map(|(at, word)| &text[at + word.len()..]);
    found.any(|rest| !rest.starts_with("izer") && !rest.starts_with("iser"))
}

/// The beginning of a text in lower case, which most are.
fn lower(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 4096;
    let text = &text[..text.floor_char_boundary(MAX_BYTES)];
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

fn text_of(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

/// A short value, for messages.
fn shown(value: &Value) -> String {
    const MAX_BYTES: usize = 60;
    match value {
        Value::Text(text) => format!(": {}", quote(&text[..text.floor_char_boundary(MAX_BYTES)])),
        Value::Bool(on) => format!(": {on}"),
        Value::U64(n) => format!(": {n}"),
        Value::I64(n) => format!(": {n}"),
        Value::F32(x) => format!(": {x}"),
        Value::F64(x) => format!(": {x}"),
        Value::Null | Value::List(_) | Value::Array(_) => String::new(),
    }
}

/// Whether a text is a JSON object of which a key is the name of a tensor or module.
fn names_tensors(cx: &Context<'_>, text: &str) -> Result<bool> {
    if !text.trim_start().starts_with('{') || text.len() > MAX_VALUE {
        return Ok(false);
    }
    let _tree = cx.budget.scope();
    let reader = JsonReader::new(cx.budget, WHAT);
    let map = match reader.parse_last(text, Tree(&reader), |_| Error::unexplained("no JSON")) {
        Ok(serde_json::Value::Object(map)) => map,
        // a text that is no object names nothing
        Ok(_) => return Ok(false),
        Err(e) if matches!(e.kind(), ErrorKind::Unexplained(_)) => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(map.keys().any(|key| names_tensor(cx, key)))
}

/// Whether a key is the name of a tensor, or of the module that a weight is in.
fn names_tensor(cx: &Context<'_>, key: &str) -> bool {
    cx.position(key).is_some() || cx.sibling(key, ".weight").is_some()
}
