//! Integers that no scheme has claimed, and that may be packed codes.

use std::collections::{HashMap, HashSet};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::scheme::Context;
use crate::read::catalog::{Encoding, quote};

use super::AccountEvidence;
use super::harmless::{self, is_integer, is_of_activations};
use super::leftovers::MAX_WORDS;
use super::tensor_claim::{Refusals, TensorClaim, add};

const WHAT: &str = "unclaimed integers";

/// Words of tensors that integers are decoded with.
static FACTORS: &[&str] = &[
    "scale",
    "scaling",
    "zero_point",
    "qzero",
    "absmax",
    "quant",
    "codebook",
    "lut",
    "shift",
    "centroid",
];

/// Formats whose files are models. Arrays of NumPy are data of any kind; the types of GGUF say what is packed.
static MODELS: &[&str] = &["safetensors", "pth", "dcp"];

/// Tensors of a file that may be a single layer.
const FEW_TENSORS: usize = 8;

/// Elements from which on integers may be weights by their number alone.
const MIN_ELEMENTS: u64 = 1024;

/// Elements from which on a vector of integers may be packed codes: bitsandbytes stores a byte for two.
const MIN_CODES: u64 = 64;

/// Adds integers that may be packed codes to `refused`: with evidence of quantisation, with factors beside them, or if they
/// are most of the bytes.
pub(super) fn find(
    cx: &Context<'_>,
    slots: &[TensorClaim],
    failed: &[usize],
    evidence: &AccountEvidence,
    refused: &mut Refusals,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !MODELS.contains(&cx.catalog.format) {
        return Ok(());
    }
    // siblings of codes that cannot be decoded are refused with them
    cx.budget.memory(64 * failed.len() as u64, WHAT)?;
    let names: HashSet<&str> = failed
        .iter()
        .map(|&tensor| &*cx.info(tensor).name)
        .collect();
    // a state of bitsandbytes is two levels below the module
    let parents: HashSet<&str> = names
        .iter()
        .flat_map(|name| [module_of(name), module_of(module_of(name))])
        .filter(|module| !module.is_empty())
        .collect();
    let is_sibling = |tensor: usize| {
        let name = &*cx.info(tensor).name;
        let ends = name.rmatch_indices('.').take(MAX_WORDS);
        let mut ends = ends.map(|(end, _)| &name[..end]);
        parents.contains(parent(cx, tensor)) || ends.any(|start| names.contains(start))
    };
    let is_free = |tensor: &usize| matches!(slots[*tensor], TensorClaim::Free);
    let unclaimed = || {
        (0..slots.len())
            .filter(is_free)
            .filter(|&tensor| is_packed(cx, tensor) && !is_sibling(tensor))
    };
    if unclaimed().next().is_none() {
        return Ok(());
    }
    // a few integers are no weights, and a file without floats is data
    let is_large = |tensor: usize| {
        let info = cx.info(tensor);
        // codes in wider words are matrices
        let bytes = matches!(info.encoding, Encoding::Plain(Dtype::I8 | Dtype::U8));
        info.elements() >= MIN_ELEMENTS && (bytes || info.shape.len() > 1)
    };
    let bytes = |tensor: usize| cx.info(tensor).nbytes();
    let large = || unclaimed().filter(|&tensor| is_large(tensor));
    let packed = large().map(bytes).fold(0, u64::saturating_add);
    // a model has them in each of its layers; a table among many other values is data
    let several = large().nth(1).is_some() || slots.len() <= FEW_TENSORS;
    let has_floats = |tensor: usize| {
        let info = cx.info(tensor);
        info.elements() > 1 && is_float(&info.encoding)
    };
    let most = several && packed > cx.catalog.nbytes() / 2 && (0..slots.len()).any(has_floats);
    let factors = factors(cx, slots)?;
    let extra = &cx.catalog.extra_fields;
    cx.budget.memory(48 * extra.len() as u64, WHAT)?;
    let fields: HashMap<&str, &str> = extra
        .iter()
        .map(|extra| (&*extra.tensor, &*extra.field))
        .collect();
    // packed codes are in the modules of a model; at the top of a file without other signs are faces, edges, pixels
    let is_scale = |tensor: usize| {
        let info = cx.info(tensor);
        is_float(&info.encoding) && FACTORS.iter().any(|word| info.name.contains(word))
    };
    let may_be_data = most && cx.config.is_empty() && !(0..slots.len()).any(is_scale);
    for tensor in unclaimed() {
        let info = cx.info(tensor);
        let stem = parent(cx, tensor);
        let may_be_codes = info.shape.len() > 1 || info.elements() >= MIN_CODES;
        let why = if is_marker(cx, tensor)? {
            "the marker that it holds".to_owned()
        } else if let Some(field) = fields.get(&*info.name) {
            format!("the field {} of its header", quote(field))
        } else if let Some(first) = evidence.first() {
            first.to_owned()
        } else if let Some(factor) = factors.get(stem).filter(|_| may_be_codes) {
            format!("{} beside it", quote(factor))
        } else if may_be_data && stem.is_empty() && is_large(tensor) {
            let (name, encoding) = (quote(&info.name), &info.encoding);
            let text = format!("{name}: {encoding} at the top of the file is copied as data");
            cx.budget.text(text.len(), WHAT)?;
            warnings.push(text);
            continue;
        } else if most && is_large(tensor) {
            "most of the bytes are such integers, and the use of them".to_owned()
        } else {
            continue;
        };
        let why = format!(
            "{} that no scheme claims; {why} is not known",
            info.encoding
        );
        add(cx, refused, tensor, why)?;
    }
    Ok(())
}

/// Whether there are integers that no scheme has claimed, and that may be packed codes.
pub(super) fn any_unclaimed(cx: &Context<'_>, slots: &[TensorClaim]) -> bool {
    let mut tensors = 0..slots.len();
    tensors.any(|tensor| matches!(slots[tensor], TensorClaim::Free) && is_packed(cx, tensor))
}

pub(super) fn is_float(encoding: &Encoding) -> bool {
    matches!(
        encoding,
        Encoding::Plain(Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64)
    )
}

/// Whether a tensor is a text that describes others: JSON as bytes.
fn is_marker(cx: &Context<'_>, tensor: usize) -> Result<bool> {
    const MAX_BYTES: u64 = 4096;
    let info = cx.info(tensor);
    let bytes = info.encoding == Encoding::Plain(Dtype::U8) && info.shape.len() == 1;
    // in a module: a text at the top is the model's, such as a tokenizer
    if !bytes || info.nbytes() > MAX_BYTES || !info.name.contains('.') {
        return Ok(false);
    }
    let text = cx.peek(tensor)?;
    Ok(text.trim_ascii_start().starts_with(b"{") && text.trim_ascii_end().ends_with(b"}"))
}

/// The module that a tensor is in.
fn parent<'c>(cx: &Context<'c>, tensor: usize) -> &'c str {
    module_of(&cx.info(tensor).name)
}

fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(module, _)| module)
}

/// Whether the elements of a tensor may be packed codes.
fn is_packed(cx: &Context<'_>, tensor: usize) -> bool {
    let info = cx.info(tensor);
    is_integer(&info.encoding) && info.elements() > 1 && !harmless::is_data(&info.name)
}

/// Unclaimed tensors whose names say that integers are decoded with them, by the module that they are in.
fn factors<'c>(cx: &Context<'c>, slots: &[TensorClaim]) -> Result<HashMap<&'c str, &'c str>> {
    let mut found = HashMap::new();
    for (tensor, _) in slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| matches!(slot, TensorClaim::Free))
    {
        let info = cx.info(tensor);
        let Some((stem, last)) = info.name.rsplit_once('.') else {
            continue;
        };
        cx.budget.steps(1 + last.len() as u64 / 16, WHAT)?;
        if is_float(&info.encoding)
            && !is_of_activations(info)
            && FACTORS.iter().any(|word| last.contains(word))
        {
            cx.budget.memory(48, WHAT)?;
            found.entry(stem).or_insert(&*info.name);
        }
    }
    Ok(found)
}
