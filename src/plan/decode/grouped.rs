//! Rows of codes with a scale, and maybe a zero point, per group: the decoder of most schemes.
//!
//! Codes are `[rows, cols]`, packed along the columns; factors are per tensor, row, group or block. Rows are contiguous, so a
//! tile reads one run of codes and one of factors; codes in planes read one run per plane. `dequantize_rows` does the
//! arithmetic.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, CodePacking, Formula, RowGeometry};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};

use super::factors::{Factors, to_f32};
use super::streaming;

mod codes;
mod packed_zeros;

pub(crate) use codes::{Codes, Planes};
use packed_zeros::PackedZeros;

/// Index of the part that holds the codes.
pub(crate) const CODES: usize = 0;

/// Rows of codes (part 0), scaled group by group.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// Rows of all matrices of a stack.
    pub(crate) rows: u64,
    /// Elements of a row.
    pub(crate) cols: u64,
    /// Rows of one matrix of a stack; equal to `rows` for a single matrix.
    pub(crate) matrix_rows: u64,
    pub(crate) codes: Codes,
    pub(crate) formula: Formula,
    pub(crate) scales: Scales,
    pub(crate) zeros: Zeros,
}

/// Where the scales of a [`Grouped`] come from.
#[derive(Debug)]
pub(crate) enum Scales {
    /// Every scale is 1.
    None,
    /// Stored scales.
    Stored(Factors),
    /// Stored scales, each multiplied by a number of another part.
    Times(Factors, GlobalScale),
    /// Stored scales, each divided by a number of another part.
    Over(Factors, GlobalScale),
    /// Stored scales, each multiplied by the quotient of such a number and a constant.
    TimesShare(Factors, GlobalScale, f32),
}

/// A scale of scales: one number for the whole weight, or one for each matrix of a stack.
#[derive(Debug)]
pub(crate) struct GlobalScale {
    pub(crate) part: usize,
    pub(crate) dtype: Dtype,
    /// 1, or the number of matrices.
    pub(crate) count: u64,
}

/// Where the zero points (or offsets) of a [`Grouped`] come from.
#[derive(Debug)]
pub(crate) enum Zeros {
    None,
    /// The same number for every element.
    All(f32),
    /// Stored one by one, with the layout of the scales.
    Stored(Factors),
    /// Codes of `bits` bits, packed along the rows into 32-bit words `[words, groups]`: column `g` holds the zero points
    /// of group `g`.
    PackedRows {
        part: usize,
        packing: CodePacking,
        bits: u32,
        words: u64,
        groups: u64,
    },
}

impl Decoder for Grouped {
    fn numbers(&self) -> Option<CodeNumbers> {
        let block = self.scales.factors();
        let block = block.map(|factors| (factors.rows, factors.cols));
        let mut numbers = CodeNumbers::new(self.codes.packing, &self.codes.value, block);
        if let Some(planes) = &self.codes.planes {
            (numbers.bits, numbers.is_packed) = (planes.bits, true);
        }
        Some(numbers)
    }

    fn grid(&self) -> Grid {
        // factors that all rows share are prepared once per tile: at least 8 rows share that work
        let least = if self.groups().0 == 1 { 8 } else { 1 };
        Grid {
            least,
            ..Grid::new(self.rows, self.cols)
        }
    }

    fn shared(&self) -> PartRanges {
        let mut spans = PartRanges::new();
        if let Scales::Times(_, global)
        | Scales::Over(_, global)
        | Scales::TimesShare(_, global, _) = &self.scales
        {
            spans.push(PartRange::run(
                global.part,
                0..global.count * global.dtype.bits() / 8,
            ));
        }
        spans
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut spans = PartRanges::new();
        if let Some(factors) = self.scales.factors() {
            spans.push(factors.span(&rows, self.cols, self.matrix_rows));
        }
        if let Zeros::Stored(factors) = &self.zeros {
            spans.push(factors.span(&rows, self.cols, self.matrix_rows));
        }
        if let Zeros::PackedRows {
            part,
            packing,
            bits,
            words,
            groups,
        } = self.zeros
        {
            let words = self.packed_zeros(packing, bits, words).words(&rows);
            spans.push(PartRange::run(
                part,
                words.start * groups * 4..words.end * groups * 4,
            ));
        }
        let bytes = self.codes.row_bytes;
        spans.extend(
            self.codes
                .runs(rows)
                .map(|run| PartRange::run(CODES, run.stored.start * bytes..run.stored.end * bytes)),
        );
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        self.make(parts, None, out)
    }

    fn decode_streaming(
        &self,
        parts: DecodeInput<'_>,
        room: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        self.make(parts, Some(room), out)
    }
}

impl Grouped {
    /// Computes the rows; with `room`, through it and non-temporal stores.
    fn make(
        &self,
        parts: DecodeInput<'_>,
        mut room: Option<&mut Vec<u8>>,
        out: &mut [u8],
    ) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let mut inputs = inputs.iter();
        let scales = self.scales(shared, &mut inputs, &rows)?;
        let zeros = self.zeros(&mut inputs, &rows, &scales)?;
        let row_bytes = (self.cols * dtype.bits() / 8) as usize;
        let (group, rows_per_factor) = self.groups();
        // factors of a whole stack do not restart at each matrix
        let stack = rows_per_factor == u64::MAX;
        let matrix_rows = if stack {
            usize::MAX
        } else {
            self.matrix_rows as usize
        };
        let factors = Factors {
            part: 0,
            dtype: Dtype::F32,
            rows: rows_per_factor,
            cols: group,
        };
        // factors were loaded for the tile only, so that indices of the whole weight are reduced by those in front
        let in_front = factors.factor_rows(&rows, self.matrix_rows).start;
        // planes divide the rows of a tile into runs, which are decoded one after the other into the output
        let (mut out, mut first) = (out, rows.start);
        for (run, codes) in self.codes.runs(rows.clone()).zip(inputs) {
            let count = run.stored.end - run.stored.start;
            let (now, behind) = out.split_at_mut(count as usize * row_bytes);
            // the kernel's view of the run; only the position of its first row within a matrix changes from chunk to
            // chunk
            let mut geometry = RowGeometry {
                cols: self.cols as usize,
                stride: self.codes.row_bytes as usize,
                packing: run.packing,
                value: self.codes.value.clone(),
                formula: self.formula,
                group: group.min(self.cols) as usize,
                rows_per_factor: matrix_rows.min(rows_per_factor as usize),
                rows_per_matrix: matrix_rows,
                first: 0,
            };
            // decodes rows of the run, the first of which is row `skipped`
            let mut decode_rows = |skipped: usize, made: &mut [u8]| {
                let start = first + skipped as u64;
                let factor_range = factors.factor_rows(
                    &(start..start + (made.len() / row_bytes) as u64),
                    self.matrix_rows,
                );
                let at = |row: u64| (row - in_front) as usize * geometry.groups();
                let factor_range = at(factor_range.start)..at(factor_range.end);
                let zeros = if zeros.is_empty() {
                    &zeros[..]
                } else {
                    &zeros[factor_range.clone()]
                };
                geometry.first = if stack {
                    0
                } else {
                    (start % self.matrix_rows) as usize
                };
                let codes = &codes.bytes[skipped * geometry.stride..];
                Ok(kernel::dequantize_rows(
                    &geometry,
                    codes,
                    &scales[factor_range],
                    zeros,
                    dtype,
                    made,
                )?)
            };
            match &mut room {
                None => decode_rows(0, now)?,
                Some(room) => streaming::decode_in_chunks(row_bytes, room, now, decode_rows)?,
            }
            (out, first) = (behind, first + count);
        }
        Ok(())
    }

    /// Columns and rows that share a factor.
    pub(crate) fn groups(&self) -> (u64, u64) {
        let factors = self.scales.factors().or(match &self.zeros {
            Zeros::Stored(factors) => Some(factors),
            _ => None,
        });
        factors.map_or((u64::MAX, u64::MAX), |f| (f.cols, f.rows))
    }

    /// The scales of these rows, one row for each row of factors.
    pub(crate) fn scales<'s>(
        &self,
        shared: &[PartBytes<'_>],
        inputs: &mut impl Iterator<Item = &'s PartBytes<'s>>,
        rows: &Range<u64>,
    ) -> Result<Vec<f32>> {
        let Some(factors) = self.scales.factors() else {
            let (group, rows_per_factor) = self.groups();
            // the kernel expects as many scales as zero points
            let zeros = Factors {
                part: 0,
                dtype: Dtype::F32,
                rows: rows_per_factor,
                cols: group,
            };
            // scales of 1 in the granularity of the zero points, since the kernel takes one array of each
            let count = zeros.factor_rows(rows, self.matrix_rows).count() as u64
                * self.cols.div_ceil(group);
            return Ok(vec![1.0; count as usize]);
        };
        let bytes = inputs.next().map_or(&[][..], |strip| strip.bytes);
        let mut scales = to_f32(factors.dtype, bytes)?;
        let (global, divide, share) = match &self.scales {
            Scales::Times(_, global) => (global, false, 1.0),
            Scales::Over(_, global) => (global, true, 1.0),
            Scales::TimesShare(_, global, share) => (global, false, *share),
            Scales::None | Scales::Stored(_) => return Ok(scales),
        };
        // multiplied into the scales before the kernel runs: once per group instead of once per element, in the order
        // of the references, which form `scale * global` first
        let globals = to_f32(global.dtype, shared[0].bytes)?;
        let per_row = self.cols.div_ceil(factors.cols) as usize;
        // rows of factors of one matrix of the stack
        let per_matrix = self.matrix_rows.div_ceil(factors.rows).max(1);
        let first = factors.factor_rows(rows, self.matrix_rows).start;
        for (row, scales) in (first..).zip(scales.chunks_mut(per_row.max(1))) {
            let global = globals[if globals.len() == 1 {
                0
            } else {
                (row / per_matrix) as usize
            }] / share;
            scales
                .iter_mut()
                // a true division: multiplying by the reciprocal would round differently from compressed-tensors
                .for_each(|s| *s = if divide { *s / global } else { *s * global });
        }
        Ok(scales)
    }

    /// The zero points of these rows, one row for each row of factors; empty if there are none.
    pub(crate) fn zeros<'s>(
        &self,
        inputs: &mut impl Iterator<Item = &'s PartBytes<'s>>,
        rows: &Range<u64>,
        scales: &[f32],
    ) -> Result<Vec<f32>> {
        match &self.zeros {
            Zeros::None => Ok(Vec::new()),
            Zeros::All(zero) => Ok(vec![*zero; scales.len()]),
            Zeros::Stored(factors) => {
                to_f32(factors.dtype, inputs.next().map_or(&[][..], |s| s.bytes))
            }
            Zeros::PackedRows {
                packing,
                bits,
                groups,
                words,
                ..
            } => {
                let table = inputs.next().map_or(&[][..], |s| s.bytes);
                Ok(self
                    .packed_zeros(*packing, *bits, *words)
                    .codes(table, rows, *groups as usize))
            }
        }
    }

    fn packed_zeros(&self, packing: CodePacking, bits: u32, words: u64) -> PackedZeros {
        // every matrix begins at a word of its own
        let matrices = (self.rows / self.matrix_rows).max(1);
        PackedZeros {
            packing,
            bits,
            rows: self.matrix_rows,
            words: words / matrices,
        }
    }
}

impl Scales {
    pub(crate) fn factors(&self) -> Option<&Factors> {
        match self {
            Self::None => None,
            Self::Stored(factors)
            | Self::Times(factors, _)
            | Self::Over(factors, _)
            | Self::TimesShare(factors, ..) => Some(factors),
        }
    }
}
