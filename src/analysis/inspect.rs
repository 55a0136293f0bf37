//! The summary of a checkpoint: what `anamnesis inspect` prints, as data.
//!
//! `serde_json::to_value(&summary)` is one element of the `checkpoints` array that
//! `anamnesis inspect --json` prints; `docs/json.md` documents it.

mod facts;
mod weights;

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::base::note::Note;
use crate::base::quote::path_text;
use crate::models::config::ModelConfig;
use crate::quant::scheme::QuantConfig;
use crate::read::catalog::Metadata;
use crate::read::catalog::{Catalog, Encoding, Endian, Layout, Quantizer, TensorInfo, elements};
use crate::read::checkpoint::Checkpoint;

pub(crate) use facts::ModelFacts;
use facts::whole;
pub use weights::{DequantisedSizes, PartSummary, WeightSummary};

/// The summary of a checkpoint.
///
/// ```
/// let summary = anamnesis::Checkpoint::open("fixtures/gguf/plain_v3.gguf")?.inspect()?;
/// assert_eq!(summary.format, "gguf");
/// assert_eq!(summary.totals.tensors, 8);
/// println!("{}", serde_json::to_string_pretty(&summary).unwrap());
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Path it was opened by; `None` for a reader or bytes.
    pub path: Option<String>,
    /// `safetensors`, `gguf`, `npy`, `npz` or `pth`.
    pub format: &'static str,
    /// Properties of the container: version, byte order, alignment, ….
    pub details: Metadata,
    /// `model_type` of its `config.json`, or `general.architecture` of a GGUF; `None` if neither is there.
    pub architecture: Option<String>,
    /// The longest context that its configuration states, in tokens.
    pub context: Option<u64>,
    /// Elements of its weights: codes count as the weights that they stand for, and scales do not. `None` if a weight is of no
    /// known scheme.
    pub parameters: Option<u64>,
    /// Its files.
    pub files: Vec<FileSummary>,
    /// Its tensors, in file order.
    pub tensors: Vec<TensorSummary>,
    /// Keys and values; long arrays as `{"type","len","first"}`.
    pub metadata: Metadata,
    /// Entries that are listed and cannot be read.
    pub refused: Vec<RefusedSummary>,
    /// Quantised weights, and the stored tensors that they are made from.
    pub weights: Vec<WeightSummary>,
    /// Bytes of all outputs of [`remember`](crate::remember); `None` if nothing is quantised.
    pub dequantised: Option<DequantisedSizes>,
    /// Sums over the tensors.
    pub totals: Totals,
    /// Findings about the files that do not prevent reading them.
    pub warnings: Vec<Note>,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// Its path.
    pub path: Option<String>,
    /// Its length.
    pub nbytes: u64,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorSummary {
    /// Name; empty for an unnamed array.
    pub name: String,
    /// safetensors', ggml's or numpy's name of the element or block type.
    pub dtype: String,
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Bytes of the logical contents.
    pub nbytes: u64,
    /// Index into `files`.
    pub file: u32,
    /// Offset of the first stored byte; of the packed member if `packing` is given; `None` where
    /// nothing is stored in one place.
    pub offset: Option<u64>,
    /// `row_major`, `column_major`, `strided`, `sparse_…` or `absent`.
    pub layout: &'static str,
    /// Strides in elements, for `strided`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strides: Option<Vec<u64>>,
    /// `deflate`, if the stored bytes are packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing: Option<&'static str>,
    /// `big`, if the stored bytes are not little endian.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endian: Option<&'static str>,
    /// Index of its storage; tied tensors have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<u32>,
    /// Parameters of a PyTorch quantised tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantizer: Option<QuantizerSummary>,
    /// SHA-256 of the logical bytes, if it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Parameters of a PyTorch quantised tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "scheme", rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuantizerSummary {
    /// One scale and zero point for the tensor.
    PerTensor {
        /// Its scale.
        scale: f64,
        /// Its zero point.
        zero_point: i64,
    },
    /// Scales and zero points per index of one dimension.
    PerChannel {
        /// The dimension.
        axis: u64,
        /// Size of the dimension.
        channels: u64,
    },
}

/// An entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedSummary {
    /// Its name.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// Sums over the tensors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Bytes of logical contents.
    pub nbytes: u64,
    /// Bytes of the files.
    pub file_nbytes: u64,
    /// Logical bits per element, over all tensors.
    pub bits_per_weight: Option<f64>,
    /// The same by dtype, largest first.
    pub by_dtype: Vec<DtypeTotal>,
}

/// Sums over the tensors of one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DtypeTotal {
    /// The dtype.
    pub dtype: String,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Bytes.
    pub nbytes: u64,
}

impl Checkpoint {
    /// The summary that `anamnesis inspect` prints. Reads the configuration in the checkpoint's directory and the
    /// descriptors of quantised weights, and no other bytes. Beside a file on a web server whose tensors are F64, F32, F16,
    /// BF16, I64 or BOOL no configuration is requested, so that the summary has no architecture and no context.
    ///
    /// # Errors
    /// A listing over [`Limits::memory`](crate::Limits::memory), which counts the catalog too;
    /// [`ErrorKind::Replaced`](crate::ErrorKind::Replaced).
    pub fn inspect(&self) -> Result<Summary> {
        let budget = self.budget();
        let mut summary = Summary::new(self.path(), self.catalog(), &budget)?;
        let is_alone = facts::is_alone(self);
        let mut planned = crate::remember(self);
        if is_alone {
            planned = planned.config(QuantConfig::default());
        }
        // a checkpoint whose weights cannot be planned is still listed: the reason becomes a warning
        let plan = whole(planned.plan_within(&budget))?;
        // after the plan, for which all configurations are requested side by side
        let config = match is_alone {
            true => ModelConfig::default(),
            false => facts::configuration(self, &budget)?,
        };
        summary.architecture = config.architecture().map(str::to_owned);
        summary.context = config.context_max();
        summary.parameters = facts::parameters(self.catalog(), plan.as_ref().ok(), &budget);
        match &plan {
            Ok(plan) => summary.add_weights(plan, self.catalog(), &budget)?,
            Err(error) => summary
                .warnings
                .push(format!("quantised weights are not listed: {error}").into()),
        }
        Ok(summary)
    }
}

const LISTING: &str = "the listing";

impl Summary {
    pub(crate) fn new(path: Option<&Path>, catalog: &Catalog, budget: &Budget) -> Result<Self> {
        let mut files = Vec::new();
        for file in &catalog.files {
            let path = file.path.as_ref().map(|p| path_text(p));
            budget.text(path.as_ref().map_or(0, String::len), LISTING)?;
            let nbytes = file.nbytes;
            budget.push(&mut files, FileSummary { path, nbytes }, LISTING)?;
        }
        let mut tensors = Vec::new();
        budget.reserve(&mut tensors, catalog.tensors().len(), LISTING)?;
        for info in catalog.tensors() {
            // charged row by row: a header of some bytes per tensor makes rows of hundreds
            budget.memory(TensorSummary::memory(info), LISTING)?;
            tensors.push(TensorSummary::new(info));
        }
        let mut refused = Vec::new();
        for row in &catalog.refused {
            budget.memory(
                text_cost(row.name.len()) + text_cost(row.reason.len()),
                LISTING,
            )?;
            let row = RefusedSummary {
                name: row.name.to_string(),
                reason: row.reason.to_string(),
            };
            budget.push(&mut refused, row, LISTING)?;
        }
        Ok(Self {
            path: path.map(path_text),
            format: catalog.format,
            details: catalog.details.without_repeats(budget)?,
            architecture: None,
            context: None,
            parameters: None,
            tensors,
            metadata: catalog.metadata.without_repeats(budget)?,
            refused,
            weights: Vec::new(),
            dequantised: None,
            totals: Totals::new(
                catalog
                    .tensors()
                    .iter()
                    .map(|t| (t.encoding.name(), t.elements(), t.nbytes())),
                catalog
                    .files
                    .iter()
                    .map(|f| f.nbytes)
                    .fold(0, u64::saturating_add),
            ),
            files,
            warnings: catalog.warnings.clone(),
        })
    }

    /// Retains the tensors for which `keep` returns true, and sums over those alone.
    pub fn retain(&mut self, keep: impl FnMut(&TensorSummary) -> bool) {
        self.tensors.retain(keep);
        self.retain_weights();
        // the sums follow the filter, the sizes of the files do not
        let rows = self
            .tensors
            .iter()
            .map(|t| (t.dtype.as_str(), t.elements(), t.nbytes));
        self.totals = Totals::new(rows, self.totals.file_nbytes);
    }
}

impl TensorSummary {
    /// Memory of a row, beyond its own size. The name of its dtype is counted again for the totals.
    fn memory(info: &TensorInfo) -> u64 {
        let rank = info.shape.len() as u64;
        let strides = match &info.layout {
            Layout::Strided(strides) => strides.len() as u64,
            _ => 0,
        };
        // the other dtypes are few
        let total = match &info.encoding {
            Encoding::Opaque(_) => 4 * size_of::<DtypeTotal>() as u64,
            _ => 0,
        };
        text_cost(info.name.len())
            + 2 * text_cost(info.encoding.name().len())
            + 8 * (rank + strides)
            + total
    }

    fn new(info: &TensorInfo) -> Self {
        Self {
            name: info.name.to_string(),
            dtype: info.encoding.name().to_owned(),
            shape: info.shape.to_vec(),
            nbytes: info.nbytes(),
            file: info.bytes.file,
            // such tensors have no bytes of their own
            offset: (!matches!(
                info.layout,
                Layout::Absent | Layout::Sparse(_) | Layout::Chunked(_)
            ))
            .then_some(info.bytes.start),
            layout: info.layout.name(),
            strides: match &info.layout {
                Layout::Strided(strides) => Some(strides.to_vec()),
                _ => None,
            },
            packing: info.packing.name(),
            endian: (info.endian == Endian::Big).then_some("big"),
            storage: info.member,
            quantizer: info.quantizer().map(QuantizerSummary::new),
            sha256: None,
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        elements(&self.shape).unwrap_or(u64::MAX)
    }
}

impl QuantizerSummary {
    fn new(quantizer: &Quantizer) -> Self {
        match quantizer {
            Quantizer::PerTensor { scale, zero_point } => Self::PerTensor {
                scale: *scale,
                zero_point: *zero_point,
            },
            Quantizer::PerChannel { scales, axis, .. } => Self::PerChannel {
                axis: *axis,
                channels: scales.elements(),
            },
        }
    }

    /// `per_tensor` or `per_channel`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PerTensor { .. } => "per_tensor",
            Self::PerChannel { .. } => "per_channel",
        }
    }
}

impl Totals {
    /// Sums over rows of `(dtype, elements, bytes)`.
    fn new<'s>(tensors: impl Iterator<Item = (&'s str, u64, u64)>, file_nbytes: u64) -> Self {
        let mut by_dtype: Vec<DtypeTotal> = Vec::new();
        // an index by name: opaque types are as many as a file likes
        let mut rows: HashMap<&str, usize> = HashMap::new();
        for (dtype, elements, nbytes) in tensors {
            let row = *rows.entry(dtype).or_insert_with(|| {
                by_dtype.push(DtypeTotal {
                    dtype: dtype.to_owned(),
                    tensors: 0,
                    elements: 0,
                    nbytes: 0,
                });
                by_dtype.len() - 1
            });
            let row = &mut by_dtype[row];
            row.tensors += 1;
            row.elements = row.elements.saturating_add(elements);
            row.nbytes = row.nbytes.saturating_add(nbytes);
        }
        // then by name, so that the order does not depend on the order of the tensors
        by_dtype.sort_by(|a, b| b.nbytes.cmp(&a.nbytes).then_with(|| a.dtype.cmp(&b.dtype)));
        let sum = |of: fn(&DtypeTotal) -> u64| by_dtype.iter().map(of).fold(0, u64::saturating_add);
        let (elements, nbytes) = (sum(|row| row.elements), sum(|row| row.nbytes));
        Self {
            tensors: sum(|row| row.tensors),
            elements,
            nbytes,
            file_nbytes,
            // over logical bytes, so that packing of the archive does not count
            bits_per_weight: (elements > 0).then(|| nbytes as f64 * 8.0 / elements as f64),
            by_dtype,
        }
    }
}
