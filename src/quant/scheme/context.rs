//! What a scheme may read: tensor descriptions, small tensors, metadata and the configuration.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::Dtype;
use crate::catalog::metadata::Value;
use crate::catalog::{Catalog, Encoding, Shape, TensorInfo, quote};
use crate::error::{Error, Result};
use crate::plan::{Decoder, StoredPart};

use super::{QuantConfig, Weight};

/// Maximum size of a small tensor that planning reads, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 10;

/// Maximum bytes of the scales in PyTorch's tensor descriptions that planning reads, over all tensors.
const MAX_SCALE_BYTES: u64 = 64 << 20;

/// What a scheme may read.
pub(crate) struct Context<'c> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) config: &'c QuantConfig,
    /// Reads the logical bytes of a small tensor.
    pub(crate) read: &'c dyn Fn(&TensorInfo) -> Result<Vec<u8>>,
    /// Whether to round after each operation, in the dtype in which the reference implementation computes.
    pub(crate) native_rounding: bool,
    /// Decisions between two readings, for the plan's notes.
    pub(crate) notes: std::cell::RefCell<Vec<String>>,
    /// Whether a weight has been claimed.
    pub(crate) claimed: std::cell::Cell<bool>,
    /// The catalog's metadata by name; built on first use.
    pub(crate) metadata: OnceCell<HashMap<&'c str, &'c Value>>,
    /// Bytes of scales that planning has read so far, against `MAX_SCALE_BYTES`.
    pub(crate) scales: std::cell::Cell<u64>,
}

impl<'c> Context<'c> {
    pub(crate) fn info(&self, tensor: usize) -> &'c TensorInfo {
        &self.catalog.tensors()[tensor]
    }

    /// The sibling tensor named `stem` followed by `suffix`.
    pub(crate) fn sibling(&self, stem: &str, suffix: &str) -> Option<usize> {
        self.catalog.position(&[stem, suffix].concat())
    }

    /// The dtype of a tensor, if its elements are of a plain dtype and not ggml blocks.
    pub(crate) fn dtype(&self, tensor: usize) -> Option<Dtype> {
        plain(self.info(tensor))
    }

    /// The first sibling that exists, with its suffix.
    pub(crate) fn first_sibling<'s>(
        &self,
        stem: &str,
        suffixes: &[&'s str],
    ) -> Option<(usize, &'s str)> {
        suffixes
            .iter()
            .find_map(|suffix| Some((self.sibling(stem, suffix)?, *suffix)))
    }

    /// The bytes of a small tensor, such as a shape or a JSON text.
    pub(crate) fn peek(&self, tensor: usize) -> Result<Vec<u8>> {
        let info = self.info(tensor);
        // planning must not become reading: shapes, states and JSON texts are far below this, and a file decides the
        // size
        if info.nbytes() > MAX_DESCRIPTOR_BYTES {
            return Err(malformed(
                info,
                format!(
                    "{} bytes; planning reads tensors of at most {MAX_DESCRIPTOR_BYTES} bytes",
                    info.nbytes()
                ),
            ));
        }
        (self.read)(info)
    }

    /// The bytes of scales that belong to a PyTorch tensor's description and are not in the catalog.
    pub(crate) fn peek_inside(&self, info: &TensorInfo, scales: &TensorInfo) -> Result<Vec<u8>> {
        self.scales
            .set(self.scales.get().saturating_add(scales.nbytes()));
        if self.scales.get() > MAX_SCALE_BYTES {
            return Err(unsupported(
                info,
                format!("per-channel scales of all tensors exceed {MAX_SCALE_BYTES} bytes"),
            ));
        }
        (self.read)(scales)
    }

    /// The index of the tensor with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.catalog.position(name)
    }

    /// A value of the catalog's metadata.
    pub(crate) fn metadata_value(&self, name: &str) -> Option<&'c Value> {
        // a map only here: schemes look up a name per tensor, and PyTorch files list thousands of values
        let metadata = self
            .metadata
            .get_or_init(|| self.catalog.metadata.iter().collect());
        metadata.get(name).copied()
    }

    /// The values of a small tensor of any integer dtype.
    pub(crate) fn peek_integers(&self, tensor: usize) -> Result<Vec<i64>> {
        let info = self.info(tensor);
        let bytes = self.peek(tensor)?;
        Ok(match plain(info) {
            // shapes and flags are stored in whatever integer the writer's library defaults to
            Some(Dtype::I64 | Dtype::U64) => bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| i64::from_le_bytes(*b))
                .collect(),
            Some(Dtype::I32) => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| i32::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::U32) => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::I16) => bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| i16::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::I8) => bytes.iter().map(|b| b.cast_signed().into()).collect(),
            Some(Dtype::U8 | Dtype::BOOL) => bytes.iter().map(|b| i64::from(*b)).collect(),
            _ => {
                return Err(malformed(
                    info,
                    format!("dtype {} instead of an integer", info.encoding),
                ));
            }
        })
    }

    /// Adds a note to the plan; the same text is added once.
    pub(crate) fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.notes.borrow_mut();
        // a note concerns the checkpoint; a model has hundreds of weights of one kind
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Whether the configuration lists this module as not quantised.
    pub(crate) fn skipped(&self, name: &str) -> bool {
        const LISTS: &[&str] = &[
            "modules_to_not_convert",
            "ignore",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
        ];
        // each writer has its own name for the list
        let lists = LISTS
            .iter()
            .filter_map(|key| self.config.get(key)?.as_array());
        lists
            .flatten()
            .filter_map(|item| item.as_str())
            .any(|pattern| covers(pattern, name))
    }

    /// Builds a weight of these parts: `(role, tensor)`.
    pub(crate) fn weight(
        &self,
        scheme: &'static str,
        name: impl Into<Box<str>>,
        shape: &[u64],
        parts: &[(&'static str, usize)],
        decoder: impl Decoder + 'static,
    ) -> Weight {
        self.weight_by(scheme, name, shape, parts, Arc::new(decoder))
    }

    /// As [`weight`](Self::weight), for a decoder whose type is chosen at run time.
    pub(crate) fn weight_by(
        &self,
        scheme: &'static str,
        name: impl Into<Box<str>>,
        shape: &[u64],
        parts: &[(&'static str, usize)],
        decoder: Arc<dyn Decoder>,
    ) -> Weight {
        Weight {
            name: name.into(),
            shape: Shape::from_slice(shape),
            scheme,
            parts: parts
                .iter()
                .map(|&(role, tensor)| StoredPart { role, tensor })
                .collect(),
            decoder,
        }
    }
}

/// Whether an entry of a list of skipped modules matches a tensor's name: as a sequence of whole dotted components, or as a
/// pattern with `*`. Of `re:` patterns, the literal text between leading and trailing special characters is matched.
fn covers(pattern: &str, name: &str) -> bool {
    let pattern = pattern
        .strip_prefix("re:")
        .map_or(pattern, |re| re.trim_matches(['.', '*', '^', '$']));
    if pattern.is_empty() {
        return false;
    }
    if let Some((before, behind)) = pattern.split_once('*') {
        let rest = name.strip_prefix(before);
        return rest.is_some_and(|rest| behind.split('*').all(|piece| rest.contains(piece)));
    }
    name.match_indices(pattern).any(|(at, _)| {
        // whole components, so that `layers.1` does not cover `layers.10`
        let starts = at == 0 || name.as_bytes()[at - 1] == b'.';
        let ends =
            name[at + pattern.len()..].is_empty() || name.as_bytes()[at + pattern.len()] == b'.';
        starts && ends
    })
}

/// The dtype of a tensor whose elements are of a plain dtype.
pub(crate) fn plain(info: &TensorInfo) -> Option<Dtype> {
    match info.encoding {
        Encoding::Plain(dtype) => Some(dtype),
        _ => None,
    }
}

/// The tensor's name without `suffix`, if it ends so.
pub(crate) fn stem<'n>(info: &'n TensorInfo, suffix: &str) -> Option<&'n str> {
    info.name.strip_suffix(suffix)
}

/// An error about a tensor, with its name and file offset.
#[cold]
pub(crate) fn malformed(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::malformed(format!("tensor {}: {what}", quote(&info.name))).at(info.bytes.start)
}

/// As [`malformed`], for valid input that this library does not decode.
#[cold]
pub(crate) fn unsupported(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("tensor {}: {what}", quote(&info.name))).at(info.bytes.start)
}

/// A shape as text, such as `[2, 3]`.
pub(crate) fn shown(shape: &[u64]) -> String {
    format!("{shape:?}")
}
