//! The differences: data that serialises to the document of `anamnesis diff --json`.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::read::checkpoint::UnreadFile;

/// The differences between two checkpoints, A and B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differences {
    /// The first side.
    pub a: DiffSide,
    /// The second side.
    pub b: DiffSide,
    /// Whether they are the same, by what [decides](super::CheckpointDiff).
    pub same: bool,
    /// Whether headers alone were compared: tensors that count as equal have equal names, dtypes and shapes, and any values.
    pub headers: bool,
    /// The number of tensors that were compared: pairs, and those that one side alone has. Without any, the two sides are
    /// not the same.
    pub compared: u64,
    /// Tensors by kind of difference. Each counts once.
    pub counts: DifferenceCounts,
    /// The tensors that differ, A's in file order, then those that B alone has; with
    /// [`list_equal`](super::CheckpointDiff::list_equal) the others too.
    pub tensors: Vec<TensorDifference>,
    /// The distance over all tensors whose values were compared.
    pub total: TotalDistance,
    /// Entries of `config.json`; `None` if not both sides have one, or it was left out.
    pub config: Option<ConfigDifferences>,
    /// Keys and values besides the tensors.
    pub metadata: MetadataDifferences,
    /// Remarks, for people.
    pub notes: Vec<String>,
    /// The names and patterns of [`rename`](super::CheckpointDiff::rename) that no name of A begins with or fits. They are
    /// mistakes, and headers alone were compared.
    #[serde(skip)]
    pub unused_renames: Vec<String>,
    /// The result in words: `same`, `same headers; values not compared`, `different` or `no tensor was compared`.
    pub verdict: &'static str,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffSide {
    /// Path it was opened by; `None` for a reader or bytes.
    pub path: Option<String>,
    /// Its format.
    pub format: &'static str,
    /// Tensors and dequantised weights. A weight counts once, whatever number of tensors store it.
    pub tensors: u64,
    /// Tensors and weights that were compared: those that the filters leave.
    pub compared: u64,
    /// Files that were opened.
    pub files: u64,
    /// Files of the model: of a directory, all files directly in it.
    pub of_files: u64,
    /// Files of the directory that were not opened, and why.
    pub unread: Vec<UnreadFile>,
    /// Names of the types of its stored tensors, the most bytes first.
    pub dtypes: Vec<String>,
}

/// How the two sides of a tensor differ. The first that fits counts, in this order: removed and added, renamed, reshaped,
/// retyped, changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// B alone has it.
    Added,
    /// A alone has it.
    Removed,
    /// Its name in B is another one: by the names of its format, or of a tensor with the same bytes.
    Renamed,
    /// It has another shape.
    Reshaped,
    /// It is stored in another dtype or by another scheme.
    Retyped,
    /// Its bytes are others.
    Changed,
    /// It is the same.
    Equal,
}

impl DifferenceKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Reshaped => "reshaped",
            Self::Retyped => "retyped",
            Self::Changed => "changed",
            Self::Equal => "equal",
        }
    }
}

/// Numbers of tensors by kind of difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the kinds of `DifferenceKind`")]
pub struct DifferenceCounts {
    pub equal: u64,
    pub changed: u64,
    pub added: u64,
    pub removed: u64,
    pub renamed: u64,
    pub retyped: u64,
    pub reshaped: u64,
}

impl DifferenceCounts {
    pub(super) fn add(&mut self, kind: DifferenceKind) {
        *match kind {
            DifferenceKind::Added => &mut self.added,
            DifferenceKind::Removed => &mut self.removed,
            DifferenceKind::Renamed => &mut self.renamed,
            DifferenceKind::Reshaped => &mut self.reshaped,
            DifferenceKind::Retyped => &mut self.retyped,
            DifferenceKind::Changed => &mut self.changed,
            DifferenceKind::Equal => &mut self.equal,
        } += 1;
    }
}

/// One tensor, or a dequantised weight.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorDifference {
    /// Its name in A.
    pub a: Option<String>,
    /// Its name in B.
    pub b: Option<String>,
    /// How it differs.
    pub kind: DifferenceKind,
    /// Its type in A: of the stored elements or blocks, or the scheme of a weight whose codes are integers.
    pub a_dtype: Option<String>,
    /// Its type in B.
    pub b_dtype: Option<String>,
    /// Its sizes in A, outermost first.
    pub a_shape: Option<Vec<u64>>,
    /// Its sizes in B.
    pub b_shape: Option<Vec<u64>>,
    /// Whether all values are equal: NaN equals NaN, and -0 equals 0. `None` if they were not compared.
    pub equal_values: Option<bool>,
    /// Number of elements with other values.
    pub differing: Option<u64>,
    /// Number of elements with other bits, where both sides store the same dtype.
    pub differing_bits: Option<u64>,
    /// Index of the first element with another value; if there is none, with other bits.
    pub first: Option<Vec<u64>>,
    /// |a − b|² / |a|²; `None` if a is all zero.
    pub nmse: Option<f64>,
    /// The largest |a − b|.
    pub max_abs: Option<f64>,
    /// The root of the mean of (a − b)².
    pub rmse: Option<f64>,
    /// The cosine of the angle between a and b; `None` if either is all zero.
    pub cosine: Option<f64>,
    /// A further remark.
    pub note: Option<String>,
    /// Whether it differs by what [decides](super::CheckpointDiff).
    #[serde(skip)]
    pub decides: bool,
    /// Bytes of its values in A, or in B if A lacks it.
    #[serde(skip)]
    pub nbytes: u64,
    /// Whether its names differ by the naming schemes of the formats alone.
    #[serde(skip)]
    pub by_scheme: bool,
}

/// A distance over several tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TotalDistance {
    /// The sum of |a − b|² over the sum of |a|²; `None` if no values were compared, or a is all zero.
    pub nmse: Option<f64>,
    /// The largest |a − b|; `None` if no values were compared.
    pub max_abs: Option<f64>,
}

/// Differences between two `config.json`. Keys of nested objects are joined by dots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConfigDifferences {
    /// Entries that B alone has.
    pub added: Map<String, Json>,
    /// Entries that A alone has.
    pub removed: Map<String, Json>,
    /// Entries with other values: A's, then B's.
    pub changed: Map<String, Json>,
}

impl ConfigDifferences {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Differences between the metadata of two checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MetadataDifferences {
    /// Keys that B alone has.
    pub added: Vec<String>,
    /// Keys that A alone has.
    pub removed: Vec<String>,
    /// Keys with other values: A's, then B's. Long arrays are shown by their first elements.
    pub changed: Map<String, Json>,
}

impl MetadataDifferences {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}
