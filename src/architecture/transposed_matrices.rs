//! A stack of matrices of another decoder, each transposed: weights of PyTorch's `Conv1D`, experts stored `[in, out]`.
//!
//! A tile of output rows is a range of columns of every stored row of a matrix, so a tile reads one run per stored row.
//! Where the runs are equally long and equally spaced, which they are for ggml's blocks and for floats, they are one strided
//! range.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use anamnesis_template::StridedRange;

use crate::error::Result;
use crate::plan::{DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};
use crate::quant::decode::{scratch, split_by_matrix};

use super::rows::{decode_elements, rows_with};

/// Output rows of a tile at least. A stored row is decoded in whole rows of the inner grid: blocks of up to 256 elements, or
/// a row of the matrix. Fewer output rows would decode each of them several times.
const LEAST: u64 = 256;

/// Element `[m, c, r]` of the output is element `[m, r, c]` of `inner`, which has `[matrices, rows, cols]`.
#[derive(Debug)]
pub(super) struct TransposedMatrices {
    pub(super) inner: Arc<dyn Decoder>,
    pub(super) matrices: u64,
    pub(super) rows: u64,
    pub(super) cols: u64,
}

/// The inputs of a range of columns of a matrix.
enum ColumnInputs {
    /// One run for each stored row.
    Strided(PartRange),
    /// The ranges of each stored row.
    PerRow(Vec<PartRanges>),
}

impl TransposedMatrices {
    /// The elements of `inner` in each stored row of these columns.
    fn elements(&self, matrix: u64, columns: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (columns, cols) = (columns.clone(), self.cols);
        (0..self.rows).map(move |row| {
            let start = (matrix * self.rows + row) * cols;
            start + columns.start..start + columns.end
        })
    }

    fn column_inputs(&self, matrix: u64, columns: &Range<u64>) -> ColumnInputs {
        let grid = self.inner.grid();
        let ranges = |elements: Range<u64>| self.inner.inputs(rows_with(grid, &elements));
        let mut lines = self.elements(matrix, columns);
        let single = |ranges: &PartRanges| match ranges[..] {
            [range] if range.bytes.count == 1 => Some(range),
            _ => None,
        };
        let first = lines.next().map(ranges).and_then(|line| single(&line));
        let second = lines.next().map(ranges).and_then(|line| single(&line));
        if let (Some(first), Some(second)) = (first, second)
            && let Some(stride) = second.bytes.start.checked_sub(first.bytes.start)
        {
            let regular = self
                .elements(matrix, columns)
                .zip(0..)
                .all(|(line, number)| {
                    single(&ranges(line)).is_some_and(|range| {
                        range.part == first.part
                            && range.bytes.len == first.bytes.len
                            && range.bytes.start == first.bytes.start + number * stride
                    })
                });
            if regular && stride >= first.bytes.len {
                let bytes = StridedRange {
                    count: self.rows,
                    stride,
                    ..first.bytes
                };
                return ColumnInputs::Strided(PartRange { bytes, ..first });
            }
        }
        ColumnInputs::PerRow(self.elements(matrix, columns).map(ranges).collect())
    }
}

impl Decoder for TransposedMatrices {
    fn grid(&self) -> Grid {
        Grid {
            least: LEAST.max(self.inner.grid().cols.min(self.cols)),
            ..Grid::new(self.matrices * self.cols, self.rows)
        }
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut all = PartRanges::new();
        for (matrix, columns) in split_by_matrix(rows, self.cols) {
            match self.column_inputs(matrix, &columns) {
                ColumnInputs::Strided(range) => all.push(range),
                ColumnInputs::PerRow(lines) => all.extend(lines.into_iter().flatten()),
            }
        }
        all
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (mut inputs, mut out, item) = (inputs, out, dtype.width());
        for (matrix, columns) in split_by_matrix(rows, self.cols) {
            let count = (columns.end - columns.start) as usize;
            let (now, behind) =
                std::mem::take(&mut out).split_at_mut(count * self.rows as usize * item);
            out = behind;
            let mut next = |n: usize| {
                inputs
                    .split_off(..n)
                    .expect("one range for each that `inputs` named")
            };
            let lines = self.column_inputs(matrix, &columns);
            let strided = match &lines {
                ColumnInputs::Strided(_) => Some(next(1)[0]),
                ColumnInputs::PerRow(_) => None,
            };
            let mut line = scratch(1, count * item)?;
            for (row, elements) in self.elements(matrix, &columns).enumerate() {
                let run;
                let own = match (&strided, &lines) {
                    (Some(strided), _) => {
                        run = [PartBytes::whole(strided.run(row))];
                        &run[..]
                    }
                    (None, ColumnInputs::PerRow(lines)) => next(lines[row].len()),
                    (None, ColumnInputs::Strided(_)) => unreachable!("taken above"),
                };
                decode_elements(&*self.inner, &elements, shared, own, dtype, &mut line)?;
                let cells = now.chunks_exact_mut(self.rows as usize * item);
                for (element, cells) in line.chunks_exact(item).zip(cells) {
                    cells[row * item..][..item].copy_from_slice(element);
                }
            }
        }
        Ok(())
    }
}
