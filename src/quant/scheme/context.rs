//! The data that a scheme may read: tensor descriptions, small tensors, metadata and the configuration.

mod descriptors;
mod modules;
mod notes;
mod refusals;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::plan::{Decoder, StoredPart};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Encoding, Shape, TensorInfo};

use super::config_groups::ConfigGroups;
use super::layer_configs::LayerConfigs;
use super::module_overrides::ModuleOverrides;
use super::name_regex::NamePatterns;
use super::target_groups::TargetGroups;
use super::{QuantConfig, Weight};
use modules::SkippedModules;
use notes::Notes;
pub(crate) use refusals::{missing, missing_by, not_known, shown, unsupported};

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
    /// Names of files that may hold matrices or codebooks of quantised weights.
    pub(crate) factors: Vec<String>,
    /// The name of a file that is named after the checkpoint's, such as `model_map.pt`.
    pub(crate) map: Option<String>,
    /// A transform of weights that the recipe of llm-compressor names.
    pub(crate) rotation: Option<String>,
    /// An `actorder` of the same by which the columns of groups are not consecutive.
    pub(crate) act_order: Option<String>,
}

/// Patterns of names of modules, each with the settings of those that it matches.
pub(super) type PatternSettings<'c> = NamePatterns<'c, (&'c str, &'c serde_json::Value)>;

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
    pub(super) overrides: OnceCell<ModuleOverrides<'c>>,
    /// The names of AutoRound's `extra_config` that are patterns.
    pub(super) extra: OnceCell<PatternSettings<'c>>,
    /// The patterns of GPTQModel's `dynamic`.
    pub(super) dynamic: OnceCell<PatternSettings<'c>>,
    targets: OnceCell<TargetGroups<'c>>,
    /// Whether the first group index of GPTQ is all zeros.
    pub(super) has_zero_index: Cell<Option<bool>>,
    /// Whether the first zero points of GPTQ have been compared with `sym`.
    pub(super) compared_zeros: Cell<bool>,
    /// Whether a weight has factors of smoothing.
    pub(super) has_smoothing: OnceCell<bool>,
    /// Whether the padding of scales has been compared with the size of groups.
    pub(super) has_padding: Cell<bool>,
    /// Markers of ComfyUI's layers in the header.
    pub(super) markers: OnceCell<HeaderMarkers>,
    /// A limit that a function without a result has reached. Planning ends with it.
    exhausted: RefCell<Option<Error>>,
}

/// The markers of ComfyUI's layers in the header, and whether there are others.
#[derive(Default)]
pub(super) struct HeaderMarkers {
    /// By module.
    pub(super) layers: HashMap<String, serde_json::Value>,
    /// The keys beside them.
    pub(super) beside: serde_json::Map<String, serde_json::Value>,
    /// Whether a tensor is a marker.
    pub(super) tensors: bool,
    /// Whether the headers of several files contradict each other.
    pub(super) contradicts: bool,
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

    /// Whether a marker of ComfyUI says how this weight of a module is stored.
    pub(super) fn has_marker(&self, weight: &Weight, module: &str) -> bool {
        let markers = self.caches.markers.get();
        weight.parts.iter().any(|part| part.role == "marker")
            || markers.is_some_and(|markers| markers.layers.contains_key(module))
    }

    /// Whether the file is one of several that belong together, and the others were not opened.
    pub(crate) fn is_part(&self) -> bool {
        let mut warnings = self.catalog.warnings.iter();
        warnings.any(|warning| warning.remedy() == Some(Remedy::OpenWhole))
    }

    /// Whether a scheme has read this key of the metadata.
    pub(crate) fn consumes_metadata(&self, name: &str) -> bool {
        self.caches.consumed.borrow().contains(name)
    }

    /// The statements of the configured groups of compressed-tensors about their weights.
    pub(super) fn configured_groups(&self) -> &ConfigGroups {
        self.caches
            .groups
            .get_or_init(|| ConfigGroups::of(self.config))
    }

    /// The targets of the configured groups, which are read once.
    pub(super) fn target_groups(&self) -> Result<&TargetGroups<'c>> {
        if let Some(targets) = self.caches.targets.get() {
            return Ok(targets);
        }
        let read = TargetGroups::read(self.config, self.budget)?;
        Ok(self.caches.targets.get_or_init(|| read))
    }

    /// The targets, if a weight has been compared with them.
    pub(super) fn read_targets(&self) -> Option<&TargetGroups<'c>> {
        self.caches.targets.get()
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
