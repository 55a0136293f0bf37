//! What a scheme may look at: descriptions, small descriptors, the configuration.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::Dtype;
use crate::catalog::{Catalog, Encoding, Shape, TensorInfo, quote};
use crate::error::{Error, Result};
use crate::metadata::Value;
use crate::plan::{Decoder, Part};

use super::{QuantConfig, Weight};

/// Bytes of a stored descriptor that planning reads at most.
const PEEK: u64 = 64 << 10;

/// Bytes of scales inside descriptions that planning reads at most, in all.
const SCALES: u64 = 64 << 20;

/// What a scheme may look at.
pub(crate) struct Context<'c> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) config: &'c QuantConfig,
    /// Reads the logical bytes of a small tensor.
    pub(crate) read: &'c dyn Fn(&TensorInfo) -> Result<Vec<u8>>,
    /// Rounds as the reference rounds, where it does so more than once.
    pub(crate) native: bool,
    /// What was chosen between two readings, and why.
    pub(crate) notes: std::cell::RefCell<Vec<String>>,
    /// Whether a weight was claimed already.
    pub(crate) claimed: std::cell::Cell<bool>,
    /// The catalog's metadata by name, once it was asked for.
    pub(crate) facts: OnceCell<HashMap<&'c str, &'c Value>>,
    /// Bytes of scales that planning has read.
    pub(crate) scales: std::cell::Cell<u64>,
}

impl<'c> Context<'c> {
    pub(crate) fn info(&self, tensor: usize) -> &'c TensorInfo {
        &self.catalog.tensors()[tensor]
    }

    /// The tensor named `stem` followed by `suffix`.
    pub(crate) fn beside(&self, stem: &str, suffix: &str) -> Option<usize> {
        self.catalog.position(&[stem, suffix].concat())
    }

    /// The plain dtype of a tensor.
    pub(crate) fn dtype(&self, tensor: usize) -> Option<Dtype> {
        plain(self.info(tensor))
    }

    /// The first of these siblings that exists, with its suffix.
    pub(crate) fn first_beside<'s>(
        &self,
        stem: &str,
        suffixes: &[&'s str],
    ) -> Option<(usize, &'s str)> {
        suffixes
            .iter()
            .find_map(|suffix| Some((self.beside(stem, suffix)?, *suffix)))
    }

    /// The bytes of a small descriptor.
    pub(crate) fn peek(&self, tensor: usize) -> Result<Vec<u8>> {
        let info = self.info(tensor);
        if info.nbytes() > PEEK {
            return Err(malformed(
                info,
                format!(
                    "a descriptor of {} bytes; at most {PEEK} are read",
                    info.nbytes()
                ),
            ));
        }
        (self.read)(info)
    }

    /// The bytes of scales that are part of a tensor's description, and not tensors of the catalog.
    pub(crate) fn peek_inside(&self, info: &TensorInfo, scales: &TensorInfo) -> Result<Vec<u8>> {
        self.scales
            .set(self.scales.get().saturating_add(scales.nbytes()));
        if self.scales.get() > SCALES {
            return Err(unsupported(
                info,
                format!("its scales, with those before, are more than {SCALES} bytes"),
            ));
        }
        (self.read)(scales)
    }

    /// The number of the tensor with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.catalog.position(name)
    }

    /// A value of the catalog's metadata.
    pub(crate) fn fact(&self, name: &str) -> Option<&'c Value> {
        let facts = self
            .facts
            .get_or_init(|| self.catalog.metadata.iter().collect());
        facts.get(name).copied()
    }

    /// The whole numbers of a small descriptor (any integer dtype).
    pub(crate) fn peek_integers(&self, tensor: usize) -> Result<Vec<i64>> {
        let info = self.info(tensor);
        let bytes = self.peek(tensor)?;
        Ok(match plain(info) {
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
                    format!("{} where whole numbers belong", info.encoding),
                ));
            }
        })
    }

    /// Says which of two readings was chosen, and why; once.
    pub(crate) fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Whether the configuration says that this module was left as it was.
    pub(crate) fn skipped(&self, name: &str) -> bool {
        const LISTS: &[&str] = &[
            "modules_to_not_convert",
            "ignore",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
        ];
        let lists = LISTS
            .iter()
            .filter_map(|key| self.config.get(key)?.as_array());
        lists
            .flatten()
            .filter_map(|item| item.as_str())
            .any(|pattern| covers(pattern, name))
    }

    /// A weight of these parts: `(role, tensor)`.
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

    /// As [`weight`](Self::weight), where which decoder it is depends.
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
                .map(|&(role, tensor)| Part { role, tensor })
                .collect(),
            decoder,
        }
    }
}

/// Whether a list of skipped modules means this tensor: by a whole dotted part of its name, by its beginning,
/// or by a pattern with `*`. (`re:` patterns are taken literally up to their first special character.)
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
        let starts = at == 0 || name.as_bytes()[at - 1] == b'.';
        let ends =
            name[at + pattern.len()..].is_empty() || name.as_bytes()[at + pattern.len()] == b'.';
        starts && ends
    })
}

/// The dtype of a plain tensor.
pub(crate) fn plain(info: &TensorInfo) -> Option<Dtype> {
    match info.encoding {
        Encoding::Plain(dtype) => Some(dtype),
        _ => None,
    }
}

/// The name without this ending.
pub(crate) fn stem<'n>(info: &'n TensorInfo, suffix: &str) -> Option<&'n str> {
    info.name.strip_suffix(suffix)
}

/// An error that names the tensor and says where it lies.
#[cold]
pub(crate) fn malformed(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::malformed(format!("tensor {}: {what}", quote(&info.name))).at(info.bytes.start)
}

/// As [`malformed`], for what is valid and not read.
#[cold]
pub(crate) fn unsupported(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("tensor {}: {what}", quote(&info.name))).at(info.bytes.start)
}

/// A shape as people write it.
pub(crate) fn shown(shape: &[u64]) -> String {
    format!("{shape:?}")
}
