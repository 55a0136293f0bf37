//! Rules: which stored tensors make which outputs, and how values change.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::plan::decode::{Cast, Rounded, TransposedMatrices};
use crate::plan::{Decoder, Job, JobWork, StoredPart};
use crate::read::catalog::{Shape, elements, quote};

use super::mapped_elements::MappedElements;
use super::model::{Model, Need};
use super::row_gather::{RowGather, RowOrder, RowSource};
use super::source_model::SourceModel;

/// One output, or one per expert.
///
/// In patterns `{i}` is the first number of a stored name (the layer) and `{e}` the second. A pattern without `.weight` or
/// `.bias` at its end covers both, and the output has the same ending.
#[derive(Debug)]
pub(in crate::models) struct TensorRule {
    /// Patterns of the stored tensors. The rule applies to the first; the others belong to it.
    pub(in crate::models) stored: &'static [&'static str],
    /// Name of the output. `{e}` without a number in the stored name means one output per expert.
    pub(in crate::models) output: &'static str,
    /// `None` if values, shape and order are the stored tensor's.
    pub(in crate::models) change: Option<Change>,
    /// The rule applies only if this holds for the model.
    pub(in crate::models) needs: Need,
    /// Whether only older converters wrote such tensors: no GGUF is written by this rule.
    pub(in crate::models) is_older: bool,
}

/// How values, shape or order of tensors change, in both directions.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Change {
    /// Makes an output of a Hugging Face checkpoint from its stored tensors.
    pub(in crate::models) to_hf: fn(&Model<'_>, &StoredTensors<'_>) -> Result<ChangedTensor>,
    /// Makes the tensors of a GGUF, in the order of the rule, from that output, or from the outputs of all experts.
    pub(in crate::models) to_gguf: ToGguf,
}

/// The way of a [`Change`] into a GGUF.
pub(in crate::models) type ToGguf =
    fn(&SourceModel<'_>, &StoredTensors<'_>) -> Result<Vec<ChangedTensor>>;

/// The jobs of the stored tensors of a rule.
#[derive(Debug)]
pub(in crate::models) struct StoredTensors<'j> {
    pub(in crate::models) jobs: Vec<&'j Job>,
    /// The layer, if the name has one.
    pub(in crate::models) layer: Option<u64>,
    /// The number of the expert, for rules that make an output for each.
    pub(in crate::models) expert: u64,
}

/// Shape and decoder of an output. The decoder's parts are the parts of all stored tensors in order.
#[derive(Debug)]
pub(in crate::models) struct ChangedTensor {
    pub(in crate::models) shape: Shape,
    pub(in crate::models) decoder: Arc<dyn Decoder>,
}

/// A rule that only renames.
pub(in crate::models) const fn same(
    stored: &'static [&'static str; 1],
    output: &'static str,
) -> TensorRule {
    TensorRule {
        stored,
        output,
        change: None,
        needs: Need::Nothing,
        is_older: false,
    }
}

/// A rule that changes values, shape or order.
pub(in crate::models) const fn changed(
    stored: &'static [&'static str],
    output: &'static str,
    change: Change,
) -> TensorRule {
    TensorRule {
        stored,
        output,
        change: Some(change),
        needs: Need::Nothing,
        is_older: false,
    }
}

impl TensorRule {
    /// This rule, under a condition.
    pub(in crate::models) const fn needs(self, needs: Need) -> Self {
        Self { needs, ..self }
    }

    /// This rule, of files of older converters.
    pub(in crate::models) const fn older(self) -> Self {
        Self {
            is_older: true,
            ..self
        }
    }
}

impl StoredTensors<'_> {
    pub(in crate::models) fn shape(&self, number: usize) -> &[u64] {
        &self.jobs[number].output.shape
    }

    /// The decoder of a stored tensor, with the number of its first part among the parts of all.
    pub(in crate::models) fn source(&self, number: usize) -> Result<RowSource> {
        let job = self.jobs[number];
        let decoder: Arc<dyn Decoder> = match &job.work {
            JobWork::Tiles { decoder, .. } => Arc::clone(decoder),
            // a big-endian tensor: its part is read whole, and byte-swapped, before the first tile
            JobWork::Stream { from, .. } => Arc::new(Cast {
                from: *from,
                elements: elements(&job.output.shape).ok_or_else(|| self.wrong(number))?,
            }),
        };
        let before = self.jobs[..number].iter().map(|job| job.parts.len()).sum();
        Ok(RowSource {
            decoder,
            first_part: before,
        })
    }

    pub(in crate::models) fn parts(&self) -> Vec<StoredPart> {
        self.jobs
            .iter()
            .flat_map(|job| job.parts.iter().copied())
            .collect()
    }

    /// The error for a tensor whose shape contradicts the metadata.
    #[cold]
    pub(in crate::models) fn wrong(&self, number: usize) -> Error {
        let output = &self.jobs[number].output;
        Error::malformed(format!(
            "tensor {}: its shape {:?} contradicts the metadata",
            quote(&output.name),
            output.shape.as_slice()
        ))
    }

    /// Rows and elements of a row of a stored tensor.
    pub(in crate::models) fn matrix(&self, number: usize) -> Result<(u64, u64)> {
        let shape = self.shape(number);
        let (rows, cols) = match shape {
            [] => (1, 1),
            // a bias follows the rows of its weight, so each element is a row
            [rows] => (*rows, 1),
            [rows @ .., cols] => (elements(rows).ok_or_else(|| self.wrong(number))?, *cols),
        };
        Ok((rows, cols))
    }

    /// The first stored tensor with its rows `[n, a, b, inner]` as `[n, b, a, inner]`.
    pub(in crate::models) fn swapped(&self, a: u64, b: u64, inner: u64) -> Result<ChangedTensor> {
        let (rows, cols) = self.matrix(0)?;
        let unit = a.checked_mul(b).and_then(|n| n.checked_mul(inner));
        // the numbers of heads are the file's
        if unit.is_none_or(|unit| unit == 0 || !rows.is_multiple_of(unit)) {
            return Err(self.wrong(0));
        }
        Ok(ChangedTensor {
            shape: Shape::from_slice(self.shape(0)),
            decoder: Arc::new(RowGather {
                sources: vec![self.source(0)?],
                rows,
                cols,
                order: RowOrder::Swapped { a, b, inner },
            }),
        })
    }

    /// The first stored tensor with this function of each element.
    pub(in crate::models) fn mapped(&self, function: fn(f32) -> f32) -> Result<ChangedTensor> {
        self.mapped_through(function, Dtype::F32)
    }

    /// The same, whose results are rounded to this dtype first.
    pub(in crate::models) fn mapped_through(
        &self,
        function: fn(f32) -> f32,
        through: Dtype,
    ) -> Result<ChangedTensor> {
        let mapped: Arc<dyn Decoder> = Arc::new(MappedElements {
            inner: self.source(0)?.decoder,
            function,
        });
        Ok(ChangedTensor {
            shape: Shape::from_slice(self.shape(0)),
            decoder: Rounded::through(mapped, through),
        })
    }

    /// A stored tensor whose innermost two dimensions are exchanged.
    pub(in crate::models) fn transposed(&self, number: usize) -> Result<ChangedTensor> {
        let shape = self.shape(number);
        let [outer @ .., rows, cols] = shape else {
            return Err(self.wrong(number));
        };
        let matrices = elements(outer).ok_or_else(|| self.wrong(number))?;
        let shape: Vec<u64> = outer.iter().copied().chain([*cols, *rows]).collect();
        Ok(ChangedTensor {
            shape: Shape::from_slice(&shape),
            decoder: Arc::new(TransposedMatrices {
                inner: self.source(number)?.decoder,
                matrices,
                rows: *rows,
                cols: *cols,
            }),
        })
    }

    /// Rows `range` of the first stored tensor, counted over all its outer dimensions, in this shape.
    pub(in crate::models) fn rows_from(&self, first: u64, shape: &[u64]) -> Result<ChangedTensor> {
        let (rows, cols) = self.matrix(0)?;
        let count = elements(shape)
            .filter(|n| cols > 0 && n.is_multiple_of(cols))
            .map(|n| n / cols);
        let count = count
            .filter(|&count| first.checked_add(count).is_some_and(|end| end <= rows))
            .ok_or_else(|| self.wrong(0))?;
        Ok(ChangedTensor {
            shape: Shape::from_slice(shape),
            decoder: Arc::new(RowGather {
                sources: vec![self.source(0)?],
                rows: count,
                cols,
                order: RowOrder::From(first),
            }),
        })
    }

    /// `run` rows of every `period` rows of a source, from the row `first` on, in this shape.
    pub(in crate::models) fn strided(
        &self,
        source: RowSource,
        (first, run, period): (u64, u64, u64),
        cols: u64,
        shape: &[u64],
    ) -> Result<ChangedTensor> {
        let rows = elements(shape).and_then(|n| n.checked_div(cols));
        let (Some(rows), true) = (rows, run > 0) else {
            return Err(self.wrong(0));
        };
        // the last row that is read; the sizes are the configuration's
        let last = rows.checked_sub(1).and_then(|row| {
            (row / run)
                .checked_mul(period)?
                .checked_add(first + row % run)
        });
        let grid = source.decoder.grid();
        let all = grid
            .rows
            .checked_mul(grid.cols)
            .and_then(|n| n.checked_div(cols));
        if last.is_some_and(|last| all.is_none_or(|all| last >= all)) {
            return Err(self.wrong(0));
        }
        Ok(ChangedTensor {
            shape: Shape::from_slice(shape),
            decoder: Arc::new(RowGather {
                sources: vec![source],
                rows,
                cols,
                order: RowOrder::Strided { first, run, period },
            }),
        })
    }

    /// All sources, one after another, as one stack.
    pub(in crate::models) fn stacked(&self) -> Result<ChangedTensor> {
        let shape = self.shape(0);
        if let Some(other) = (0..self.jobs.len()).find(|&number| self.shape(number) != shape) {
            return Err(self.wrong(other));
        }
        let (each, cols) = self.matrix(0)?;
        let count = self.jobs.len() as u64;
        let sources = (0..self.jobs.len()).map(|number| self.source(number));
        let shape: Vec<u64> = [count].iter().chain(shape).copied().collect();
        Ok(ChangedTensor {
            shape: Shape::from_slice(&shape),
            decoder: Arc::new(RowGather {
                sources: sources.collect::<Result<_>>()?,
                rows: each.checked_mul(count).ok_or_else(|| self.wrong(0))?,
                cols,
                order: RowOrder::Stacked { each },
            }),
        })
    }

    /// Rows of several sources in groups, in this shape.
    pub(in crate::models) fn interleaved(
        &self,
        sources: Vec<RowSource>,
        counts: Vec<u64>,
        groups: u64,
        cols: u64,
        shape: &[u64],
    ) -> Result<ChangedTensor> {
        let group = counts
            .iter()
            .try_fold(0u64, |sum, count| sum.checked_add(*count))
            .filter(|&group| group > 0);
        let rows = group
            .and_then(|group| group.checked_mul(groups))
            .ok_or_else(|| self.wrong(0))?;
        // the counts are from the metadata, and the shape from the tensors: they may contradict each other
        if rows.checked_mul(cols) != elements(shape) {
            return Err(self.wrong(0));
        }
        Ok(ChangedTensor {
            shape: Shape::from_slice(shape),
            decoder: Arc::new(RowGather {
                sources,
                rows,
                cols,
                order: RowOrder::Interleaved(counts),
            }),
        })
    }
}

/// The stored tensor's name with its first number as `{i}` and its second as `{e}`, and these numbers as text.
pub(in crate::models) fn pattern_of(name: &str) -> (String, Vec<&str>) {
    let mut numbers = Vec::new();
    // two marks may be longer than their numbers
    let mut pattern = String::with_capacity(name.len() + 2 * "{i}".len());
    for (position, component) in name.split('.').enumerate() {
        if position > 0 {
            pattern.push('.');
        }
        let number = !component.is_empty() && component.bytes().all(|b| b.is_ascii_digit());
        // a layer and an expert: further numbers are part of the name
        if number && numbers.len() < 2 {
            numbers.push(component);
            pattern.push_str(["{i}", "{e}"][numbers.len() - 1]);
        } else {
            pattern.push_str(component);
        }
    }
    (pattern, numbers)
}

/// A pattern with the layer and the expert in place.
pub(in crate::models) fn filled(
    pattern: &str,
    layer: Option<&str>,
    expert: Option<&str>,
) -> String {
    let mut name = pattern.to_owned();
    for (mark, number) in [("{i}", layer), ("{e}", expert)] {
        if let Some(number) = number {
            name = name.replace(mark, number);
        }
    }
    name
}
