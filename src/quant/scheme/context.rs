//! The data that a scheme may read: tensor descriptions, small tensors, metadata and the configuration.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::plan::{Decoder, StoredPart};
use crate::quant::settings::{SchemeSettings, unknown_in_descriptor};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Encoding, Shape, TensorInfo, quote};

use super::config_groups::ConfigGroups;
use super::layer_configs::LayerConfigs;
use super::module_names::{ComponentSequences, PrefixPatterns};
use super::{QuantConfig, Weight};

/// Maximum size of a small tensor that planning reads, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 10;

/// Maximum bytes of the scales in PyTorch's tensor descriptions that planning reads, over all tensors.
const MAX_SCALE_BYTES: u64 = 64 << 20;

/// The data that a scheme may read.
pub(crate) struct Context<'c> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) config: &'c QuantConfig,
    /// Reads the logical bytes of a small tensor.
    pub(crate) read: &'c dyn Fn(&TensorInfo) -> Result<Vec<u8>>,
    /// Whether to round after each operation, in the dtype in which the reference implementation computes.
    pub(crate) native_rounding: bool,
    /// Whether what is not known is ignored ([`OpenOptions::assume_plain`](crate::OpenOptions::assume_plain)).
    pub(crate) assume_plain: bool,
    pub(crate) sidecars: &'c Sidecars,
    pub(crate) budget: &'c Budget,
    pub(crate) caches: ContextCaches<'c>,
}

/// Files beside a checkpoint that may describe its tensors.
#[derive(Default)]
pub(crate) struct Sidecars {
    /// Names of files that speak of quantisation, and that no configuration is read from.
    pub(crate) files: Vec<String>,
    /// The name of a file that is named after the checkpoint's, such as `model_map.pt`.
    pub(crate) map: Option<String>,
}

/// The findings of planning so far.
#[derive(Default)]
pub(crate) struct ContextCaches<'c> {
    /// Decisions between two readings, for the plan's notes.
    notes: RefCell<Notes>,
    /// Unknown settings in the descriptors of weights.
    remarks: RefCell<Vec<String>>,
    /// Whether a weight has been claimed.
    pub(crate) claimed: Cell<bool>,
    /// The catalog's metadata by name; built on first use.
    metadata: OnceCell<HashMap<&'c str, &'c Value>>,
    /// Keys of the metadata that schemes have looked up and found.
    consumed: RefCell<HashSet<&'c str>>,
    /// Bytes of scales that planning has read so far, against `MAX_SCALE_BYTES`.
    scales: Cell<u64>,
    /// The configured lists of modules that are not quantised.
    skipped: OnceCell<SkippedModules<'c>>,
    pub(super) layers: OnceCell<LayerConfigs<'c>>,
    groups: OnceCell<ConfigGroups>,
    /// Whether the first group index of GPTQ is all zeros.
    pub(super) has_zero_index: Cell<Option<bool>>,
    /// Markers of ComfyUI's layers in the header.
    pub(super) markers: OnceCell<HeaderMarkers>,
    /// A limit that a function without a result has reached. Planning ends with it.
    exhausted: RefCell<Option<Error>>,
}

#[derive(Default)]
struct Notes {
    list: Vec<String>,
    known: HashSet<String>,
}

/// Notes of one plan. Further ones are counted.
const MAX_NOTES: usize = 100;

/// The markers of ComfyUI's layers in the header, and whether there are others.
#[derive(Default)]
pub(super) struct HeaderMarkers {
    /// By module.
    pub(super) layers: HashMap<String, serde_json::Value>,
    /// The keys beside them.
    pub(super) beside: serde_json::Map<String, serde_json::Value>,
    /// Whether a tensor is a marker.
    pub(super) tensors: bool,
}

/// Unknown settings of descriptors that are kept. Weights of one file have the same.
const MAX_REMARKS: usize = 16;

/// The configured lists of modules that are not quantised.
#[derive(Default)]
struct SkippedModules<'c> {
    names: ComponentSequences<'c>,
    patterns: PrefixPatterns<'c>,
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
            return Err(not_known(
                info,
                format!(
                    "{} bytes; planning reads tensors of at most {MAX_DESCRIPTOR_BYTES} bytes",
                    info.nbytes()
                ),
            ));
        }
        self.charge_read(info)?;
        (self.read)(info)
    }

    /// Charges the bytes of a tensor that planning reads. Many tensors can be views of the same bytes.
    fn charge_read(&self, info: &TensorInfo) -> Result<()> {
        self.budget
            .steps(1 + info.nbytes() / 16, "the descriptors of weights")
    }

    /// The bytes of scales that belong to a PyTorch tensor's description and are not in the catalog.
    pub(crate) fn peek_inside(&self, info: &TensorInfo, scales: &TensorInfo) -> Result<Vec<u8>> {
        let read = &self.caches.scales;
        read.set(read.get().saturating_add(scales.nbytes()));
        if read.get() > MAX_SCALE_BYTES {
            return Err(unsupported(
                info,
                format!("per-channel scales of all tensors exceed {MAX_SCALE_BYTES} bytes"),
            ));
        }
        self.charge_read(scales)?;
        (self.read)(scales)
    }

    /// The index of the tensor with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.catalog.position(name)
    }

    /// A value of the catalog's metadata.
    pub(crate) fn metadata_value(&self, name: &str) -> Option<&'c Value> {
        // a map only here: schemes look up a name per tensor, and PyTorch files list thousands of values
        const ENTRY: u64 = 5 * size_of::<(&str, &Value)>() as u64;
        let metadata = self.caches.metadata.get_or_init(|| {
            let all = &self.catalog.metadata;
            let charged = self
                .budget
                .memory(ENTRY * all.len() as u64, "the names of the metadata");
            self.sound(charged)
                .map_or_else(HashMap::new, |()| all.iter().collect())
        });
        let (key, value) = metadata.get_key_value(name)?;
        // a value that a scheme reads is one that it knows; the set has at most the entries of the map above
        self.caches.consumed.borrow_mut().insert(key);
        Some(value)
    }

    /// Whether a scheme has read this key of the metadata.
    pub(crate) fn consumes_metadata(&self, name: &str) -> bool {
        self.caches.consumed.borrow().contains(name)
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
                return Err(not_known(
                    info,
                    format!("dtype {} instead of an integer", info.encoding),
                ));
            }
        })
    }

    /// Compares a descriptor of a weight, such as a marker, with the settings that its writer has. One that decides how
    /// bytes are read is refused, another is a remark of the account.
    pub(crate) fn know_descriptor(
        &self,
        info: &TensorInfo,
        what: &str,
        map: &serde_json::Map<String, serde_json::Value>,
        known: &SchemeSettings,
    ) -> Result<()> {
        for setting in unknown_in_descriptor(map, known, self.budget)? {
            let text = format!("{}: {} of {what}", quote(&setting.key), setting.value);
            if setting.decides {
                let what = format!("{text} is not known, and decides how its bytes are read");
                return Err(not_known(info, what));
            }
            self.remark(text)?;
        }
        Ok(())
    }

    /// Adds something that is not known to the account's remarks, once.
    pub(crate) fn remark(&self, text: String) -> Result<()> {
        let mut remarks = self.caches.remarks.borrow_mut();
        if remarks.len() < MAX_REMARKS && !remarks.contains(&text) {
            self.budget.text(text.len(), "the notes of the plan")?;
            remarks.push(text);
        }
        Ok(())
    }

    /// The unknown settings of descriptors so far.
    pub(crate) fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.caches.remarks.borrow_mut())
    }

    /// Whether a tensor is of a module of this name, which may lack the first components of the tensor's name.
    pub(crate) fn has_module(&self, name: &str) -> Result<bool> {
        if self.position(&[name, ".weight"].concat()).is_some() {
            return Ok(true);
        }
        for info in self.catalog.tensors() {
            self.budget
                .steps(1 + info.name.len() as u64 / 16, "the configured modules")?;
            // `a.b` is a module of `m.a.b.weight` and of `m.a.b.c.weight`
            let found = info.name.find(name).is_some_and(|at| {
                let (before, after) = (&info.name[..at], &info.name[at + name.len()..]);
                (before.is_empty() || before.ends_with('.')) && after.starts_with('.')
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a note to the plan; the same text is added once.
    pub(crate) fn note(&self, text: impl Into<String>) {
        let text = text.into();
        // a note concerns the checkpoint; a model has hundreds of weights of one kind
        let mut notes = self.caches.notes.borrow_mut();
        if notes.list.len() > MAX_NOTES || notes.known.contains(&text) {
            return;
        }
        let charged = self.budget.memory(
            2 * text_cost(text.len()) + 2 * size_of::<[String; 2]>() as u64,
            "the notes of the plan",
        );
        if self.sound(charged).is_none() {
            return;
        }
        if notes.list.len() == MAX_NOTES {
            notes.list.push("further notes are left out".to_owned());
            return;
        }
        notes.known.insert(text.clone());
        notes.list.push(text);
    }

    /// The notes so far.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.caches.notes.borrow_mut().list)
    }

    /// Keeps the error of a function that returns none, for [`check`](Self::check).
    pub(super) fn sound<T>(&self, made: Result<T>) -> Option<T> {
        made.map_err(|error| self.caches.exhausted.replace(Some(error)))
            .ok()
    }

    /// A limit that has been reached where no error could be returned.
    pub(crate) fn check(&self) -> Result<()> {
        self.caches.exhausted.take().map_or(Ok(()), Err)
    }

    /// Whether the configuration lists this module as not quantised.
    pub(crate) fn skipped(&self, name: &str) -> bool {
        // each writer has its own name for the list
        let skipped = self.caches.skipped.get_or_init(|| {
            self.sound(SkippedModules::new(self.config, self.budget))
                .unwrap_or_default()
        });
        if skipped.names.occur_in(name) {
            return true;
        }
        let found = skipped.patterns.first(name, self.budget, |rest, pattern| {
            pattern.split('*').all(|piece| {
                // a search is prepared for long texts, and most pieces are not there
                let first = piece.as_bytes().first();
                first.is_none_or(|byte| rest.as_bytes().contains(byte) && rest.contains(piece))
            })
        });
        self.sound(found).flatten().is_some()
    }

    /// The statements of the configured groups of compressed-tensors about their weights.
    pub(super) fn configured_groups(&self) -> &ConfigGroups {
        self.caches
            .groups
            .get_or_init(|| ConfigGroups::of(self.config))
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

    /// Like [`weight`](Self::weight), for a decoder whose type is chosen at run time.
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

impl<'c> SkippedModules<'c> {
    /// An entry matches as a sequence of whole dotted components, or as a pattern with `*`. For `re:` patterns, the literal
    /// text between leading and trailing special characters is matched.
    fn new(config: &'c QuantConfig, budget: &Budget) -> Result<Self> {
        const LISTS: &[&str] = &[
            "modules_to_not_convert",
            "ignore",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
        ];
        let lists = LISTS.iter().filter_map(|key| config.get(key)?.as_array());
        let entries = lists
            .flatten()
            .filter_map(|item| item.as_str())
            .map(|entry| {
                entry
                    .strip_prefix("re:")
                    .map_or(entry, |re| re.trim_matches(['.', '*', '^', '$']))
            })
            .filter(|entry| !entry.is_empty());
        let names = entries.clone().filter(|entry| !entry.contains('*'));
        Ok(Self {
            names: ComponentSequences::new(names, budget)?,
            patterns: PrefixPatterns::new(entries.enumerate(), budget)?,
        })
    }
    // whole components, so that `layers.1` does not cover `layers.10`
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
pub(crate) fn not_known(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unexplained(about(info, what)).at(info.bytes.start)
}

/// Like [`not_known`], for valid input that this library does not decode.
#[cold]
pub(crate) fn unsupported(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unsupported(about(info, what)).at(info.bytes.start)
}

/// An error for a weight that lacks one of its parts.
#[cold]
pub(crate) fn missing(info: &TensorInfo, part: &str) -> Error {
    Error::unexplained(format!(
        "tensor {}: its {} is missing",
        quote(&info.name),
        quote(part)
    ))
    .at(info.bytes.start)
}

/// Like [`missing`], for a part that a setting demands.
#[cold]
pub(crate) fn missing_by(info: &TensorInfo, part: &str, setting: &str, value: &str) -> Error {
    not_known(
        info,
        format!(
            "its {} is missing, though the configuration says {}: {}",
            quote(part),
            quote(setting),
            value
        ),
    )
}

/// A message about a tensor. It may quote text of a descriptor, of which it shows the beginning: a plan keeps a message
/// per refused weight.
fn about(info: &TensorInfo, what: impl std::fmt::Display) -> String {
    const MAX_BYTES: usize = 1 << 10;
    let mut text = format!("tensor {}: {what}", quote(&info.name));
    if text.len() > MAX_BYTES {
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

/// A shape as text, such as `[2, 3]`.
pub(crate) fn shown(shape: &[u64]) -> String {
    format!("{shape:?}")
}
