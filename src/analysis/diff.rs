//! `diff`: what differs between two checkpoints, of any formats and shardings.
//!
//! The work is done in the order of its cost: files that are the same file, or of the same digest, are not read; names, dtypes
//! and shapes are of the headers; bytes are compared in place, pieces of both files in step; and values are decoded only
//! where bytes differ, or dtypes, schemes or orders do. Values are decoded as by [`remember`](crate::remember()), tile by
//! tile, so that a GGUF is compared with the checkpoint that it was made from by the names and in the order of rows of the
//! latter.

mod alike;
mod byte_reader;
mod bytes;
mod bytes_pass;
mod compared_pairs;
mod comparison;
mod config;
mod content;
mod differences;
mod identity;
mod metadata;
mod moments;
mod numbers;
mod ordered_sums;
mod outcome;
mod pairing;
mod piece_numbers;
mod rename;
mod rows;
mod sides;
mod tensor_bytes;
mod tied;
mod values;
mod values_pass;

use std::fmt;

use crate::base::error::Result;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::run_options::{RunOptions, run_options};
use crate::read::selection::Selection;

pub use differences::{
    ConfigDifferences, DiffSide, DifferenceCounts, DifferenceKind, Differences,
    MetadataDifferences, TensorDifference, TotalDistance,
};

use crate::read::rename::Rename;

/// How far apart values may be that count as equal.
///
/// Elements that are NaN or infinite on one side alone, and other infinities, are never within a tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueTolerance {
    /// The most |a − b|² / |a|² of a tensor.
    pub nmse: Option<f64>,
    /// The most |a − b| of an element.
    pub max_abs: Option<f64>,
}

/// Compares two checkpoints. Made by [`diff`].
///
/// Names, dtypes, shapes and bytes of tensors, and `config.json`, decide whether they are the same. With
/// [`values`](Self::values), names and dtypes do not, and values take the place of bytes. Metadata decides only if
/// [`metadata`](Self::metadata) says so. All differences are listed in any case.
#[derive(Clone)]
pub struct CheckpointDiff<'c> {
    a: CheckpointHandle<'c>,
    b: CheckpointHandle<'c>,
    values: bool,
    tolerance: Option<ValueTolerance>,
    metadata: bool,
    config: bool,
    headers_only: bool,
    verdict_only: bool,
    list_equal: bool,
    rename: Vec<Rename>,
    /// Accepts what is not excluded.
    not_excluded: Selection<'c>,
    options: RunOptions<'c>,
}

/// Compares two checkpoints.
///
/// ```
/// use anamnesis::{Checkpoint, diff};
///
/// let a = Checkpoint::open("fixtures/ask/diff/base/model.safetensors")?;
/// let b = Checkpoint::open("fixtures/ask/diff/one-ulp.safetensors")?;
/// let found = diff(&a, &b).run()?;
/// assert!(!found.same);
/// assert_eq!((found.counts.equal, found.counts.changed), (20, 1));
/// let changed = &found.tensors[0];
/// assert_eq!(changed.first.as_deref(), Some(&[3, 5][..]));
/// assert_eq!(changed.differing, Some(1));
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// A quantised checkpoint, with the names of llama.cpp, and the one that it was made from:
///
/// ```
/// use anamnesis::diff::ValueTolerance;
/// use anamnesis::{Checkpoint, diff};
///
/// let a = Checkpoint::open("fixtures/ask/diff/qwen2")?;
/// let b = Checkpoint::open("fixtures/ask/diff/qwen2-q8_0.gguf")?;
/// let tolerance = ValueTolerance { nmse: Some(1e-3), ..ValueTolerance::default() };
/// let found = diff(&a, &b).tolerance(tolerance).run()?;
/// assert!(found.same && found.total.nmse > Some(0.0));
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn diff<'c>(
    a: impl Into<CheckpointHandle<'c>>,
    b: impl Into<CheckpointHandle<'c>>,
) -> CheckpointDiff<'c> {
    CheckpointDiff {
        a: a.into(),
        b: b.into(),
        values: false,
        tolerance: None,
        metadata: false,
        config: true,
        headers_only: false,
        verdict_only: false,
        list_equal: false,
        rename: Vec::new(),
        not_excluded: Selection::default(),
        options: RunOptions::default(),
    }
}

run_options!(CheckpointDiff {
    threads,
    /// Tensors whose name on either side passes are compared.
    filter,
    /// In bytes that were compared. There are up to two passes with a total of their own: one over stored bytes, and one over
    /// the values of tensors that are decoded.
    progress,
    cancel,
});

impl<'c> CheckpointDiff<'c> {
    /// Whether values alone decide, and not names, dtypes and layouts that mean the same: a name of the other format, a tensor
    /// with the same bytes under another name, a dtype that holds the same values, dimensions of one element. Default off.
    #[must_use]
    pub fn values(mut self, values: bool) -> Self {
        self.values = values;
        self
    }

    /// Values that are at most this far apart count as equal. Implies [`values`](Self::values).
    #[must_use]
    pub fn tolerance(mut self, tolerance: ValueTolerance) -> Self {
        self.tolerance = Some(tolerance);
        self.values = true;
        self
    }

    /// Whether the metadata of the files (`__metadata__` of safetensors, the keys of a GGUF) decides too. Default off.
    #[must_use]
    pub fn metadata(mut self, metadata: bool) -> Self {
        self.metadata = metadata;
        self
    }

    /// Whether `config.json` is compared, and decides, where both sides have one. Default on.
    #[must_use]
    pub fn config(mut self, config: bool) -> Self {
        self.config = config;
        self
    }

    /// Renames tensors of A for the comparison, by the rules of [`Rename`]. The first rename that fits a name counts.
    #[must_use]
    pub fn rename(mut self, from: &str, to: &str) -> Self {
        self.rename.push(Rename::new(from, to));
        self
    }

    /// Whether headers alone are compared: names, dtypes and shapes. Reads no tensor. Default off.
    #[must_use]
    pub fn headers_only(mut self, headers_only: bool) -> Self {
        self.headers_only = headers_only;
        self
    }

    /// Whether the run ends with the first difference that decides. Only [`Differences::same`] has a meaning in the result
    /// then. Default off.
    #[must_use]
    pub fn verdict_only(mut self, verdict_only: bool) -> Self {
        self.verdict_only = verdict_only;
        self
    }

    /// Whether equal tensors are listed too. Default off: they are counted.
    #[must_use]
    pub fn list_equal(mut self, list_equal: bool) -> Self {
        self.list_equal = list_equal;
        self
    }

    /// Leaves out tensors whose name on either side this accepts.
    #[must_use]
    pub fn exclude(mut self, leave_out: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.not_excluded.set_filter(move |name| !leave_out(name));
        self
    }

    /// Compares them. Memory is two tiles per thread, and what the lists of names take.
    ///
    /// # Errors
    /// I/O; stored bytes that contradict each other, or do not agree with their checksum; a `config.json` that is not a JSON
    /// object; lists over [`Limits::memory`](crate::Limits::memory) or [`Limits::steps`](crate::Limits::steps); cancellation. A
    /// tensor that cannot be decoded is no error: its stored bytes are compared, and its note has the reason.
    pub fn run(&self) -> Result<Differences> {
        comparison::run(self)
    }
}

impl fmt::Debug for CheckpointDiff<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointDiff")
            .field("values", &self.values)
            .field("tolerance", &self.tolerance)
            .field("rename", &self.rename)
            .finish_non_exhaustive()
    }
}
