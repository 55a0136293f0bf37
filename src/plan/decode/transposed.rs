//! Stacks of input-major matrices in any packing: gpt-oss' experts, Quark's groups.
//!
//! An output row is a stored column. A tile reads the same range of every stored row, which is a strided range, decodes
//! these rows with the kernel for rows, and transposes the elements in squares of 32 x 32, so that both sides of a square
//! stay in the first-level cache. [`Columns`](super::Columns) is the decoder for GPTQ's and AWQ's words, which are unpacked
//! and transposed in one pass; see there why both exist.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, CodePacking, CodeValue, Formula, RowGeometry};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};

use super::code_order::CodeOrder;
use super::factors::{half_exponent, to_f32};
use super::grouped::CODES;
use super::tile_rows::{scratch, split_by_matrix};

/// Minimum rows of a tile: a stored row is read in runs of at least this many codes.
const LEAST: u64 = 256;

/// A stack of matrices of codes (part 0), `[matrices, stored_rows, stored_cols]`; element `[m, c, r]` of the output is code
/// `[m, r, c]`. There is a scale, and maybe a zero point, for each block of `group_rows` x `group_cols` codes, stored
/// `[matrices, ceil(stored_rows / group_rows), stored_cols / group_cols]`.
#[derive(Debug)]
pub(crate) struct Transposed {
    pub(crate) matrices: u64,
    pub(crate) stored_rows: u64,
    pub(crate) stored_cols: u64,
    pub(crate) packing: CodePacking,
    pub(crate) order: CodeOrder,
    pub(crate) value: CodeValue,
    pub(crate) group_rows: u64,
    pub(crate) group_cols: u64,
    pub(crate) scales: TransposedScales,
    pub(crate) zeros: TransposedZeros,
}

/// Where the scales of a [`Transposed`] come from, by the index of their part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransposedScales {
    /// Stored in this dtype; each is multiplied by the number, if there is one.
    Stored(usize, Dtype, Option<f32>),
    /// Bytes `s` that stand for 2^(s - 128): half of an E8M0 scale, and no NaN.
    HalfExponents(usize),
}

/// Where the zero points of a [`Transposed`] come from, by the index of their part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransposedZeros {
    None,
    /// Packed like the codes, a stored row for each row of scales.
    Packed(usize),
    /// Stored one by one, with the shape of the scales.
    Stored(usize, Dtype),
}

impl Transposed {
    /// Tiles begin at multiples of this many rows: whole groups, and whole bytes or words of codes.
    fn step(&self) -> u64 {
        // eight codes of 4 bits fill a word, the widest unit that a stored row is divided into
        self.group_cols.max(8)
    }

    fn factor_rows(&self) -> u64 {
        self.stored_rows.div_ceil(self.group_rows)
    }

    fn bytes(&self, codes: u64) -> u64 {
        self.packing
            .row_bytes(codes)
            .expect("less than a stored row, whose length was verified")
    }

    /// The range of the factors, of `bytes` bytes each, of these stored columns.
    fn factors(&self, part: usize, bytes: u64, matrix: u64, codes: &Range<u64>) -> PartRange {
        let (lines, stride) = (
            self.factor_rows(),
            self.stored_cols / self.group_cols * bytes,
        );
        let (start, end) = (
            codes.start / self.group_cols * bytes,
            codes.end / self.group_cols * bytes,
        );
        // the factors of earlier matrices of the stack
        let before = matrix * lines * stride;
        PartRange::strided(part, before + start..before + end, lines, stride)
    }

    fn packed(&self, part: usize, lines: u64, matrix: u64, codes: &Range<u64>) -> PartRange {
        let stride = self.bytes(self.stored_cols);
        let (start, end) = (self.bytes(codes.start), self.bytes(codes.end));
        let before = matrix * lines * stride;
        PartRange::strided(part, before + start..before + end, lines, stride)
    }
}

impl Decoder for Transposed {
    fn numbers(&self) -> Option<CodeNumbers> {
        // rows of the output are stored columns
        let block = Some((self.group_cols, self.group_rows));
        Some(CodeNumbers::new(self.packing, &self.value, block))
    }

    fn grid(&self) -> Grid {
        Grid {
            rows: self.matrices * self.stored_cols,
            cols: self.stored_rows,
            step: self.step(),
            least: LEAST,
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut spans = PartRanges::new();
        for (matrix, codes) in split_by_matrix(rows, self.stored_cols) {
            // factors first, then zero points, then codes: `decode` consumes the ranges in this order
            let (part, bytes) = match self.scales {
                TransposedScales::Stored(part, dtype, _) => (part, dtype.bits() / 8),
                TransposedScales::HalfExponents(part) => (part, 1),
            };
            spans.push(self.factors(part, bytes, matrix, &codes));
            match self.zeros {
                TransposedZeros::None => {}
                TransposedZeros::Packed(part) => {
                    spans.push(self.packed(part, self.factor_rows(), matrix, &codes))
                }
                TransposedZeros::Stored(part, dtype) => {
                    spans.push(self.factors(part, dtype.bits() / 8, matrix, &codes))
                }
            }
            spans.push(self.packed(CODES, self.stored_rows, matrix, &codes));
        }
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            inputs,
            rows,
            dtype,
            ..
        } = parts;
        let (mut inputs, mut out) = (inputs.iter(), out);
        let mut next = || {
            inputs
                .next()
                .expect("one range for each that `inputs` named")
        };
        let (lines, item) = (self.stored_rows as usize, dtype.bits() as usize / 8);
        for (_, codes) in split_by_matrix(rows, self.stored_cols) {
            let count = (codes.end - codes.start) as usize;
            let (now, behind) = std::mem::take(&mut out).split_at_mut(count * lines * item);
            out = behind;
            let scales = match self.scales {
                TransposedScales::Stored(_, dtype, factor) => {
                    let mut scales = self.numbers(next(), |line| to_f32(dtype, line))?;
                    factor
                        .into_iter()
                        .for_each(|factor| scales.iter_mut().for_each(|scale| *scale *= factor));
                    scales
                }
                TransposedScales::HalfExponents(_) => self.numbers(next(), |line| {
                    Ok(line.iter().map(|e| half_exponent(*e)).collect())
                })?,
            };
            let zeros = match self.zeros {
                TransposedZeros::None => Vec::new(),
                TransposedZeros::Packed(_) => self.unpacked(next(), count)?,
                TransposedZeros::Stored(_, dtype) => {
                    self.numbers(next(), |line| to_f32(dtype, line))?
                }
            };
            // the decoded rows of the tile before they are transposed, in the dtype of the output
            let mut made = scratch(lines, count * item)?;
            let formula = if zeros.is_empty() {
                Formula::Scale
            } else {
                Formula::ZeroScale
            };
            self.decode_rows(
                next(),
                count,
                formula,
                (self.group_cols, self.group_rows),
                &scales,
                &zeros,
                dtype,
                &mut made,
            )?;
            match item {
                // by the width alone: moving bits needs no arithmetic
                2 => transpose::<2>(&made, count, lines, now),
                _ => transpose::<4>(&made, count, lines, now),
            }
        }
        Ok(())
    }
}

impl Transposed {
    /// Factors that are stored one by one, row after row.
    fn numbers(
        &self,
        strip: &PartBytes<'_>,
        read: impl Fn(&[u8]) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        let mut numbers = Vec::new();
        for line in 0..self.factor_rows() as usize {
            numbers.extend(read(strip.run(line))?);
        }
        Ok(numbers)
    }

    /// Packed zero points, row after row.
    fn unpacked(&self, strip: &PartBytes<'_>, count: usize) -> Result<Vec<f32>> {
        let lines = self.factor_rows() as usize;
        let mut made = scratch(lines, count * 4)?;
        self.decode_rows(
            strip,
            count,
            Formula::Scale,
            // one factor of 1 for everything: the packed codes themselves are the zero points
            (u64::MAX, u64::MAX),
            &[1.0],
            &[],
            Dtype::F32,
            &mut made,
        )?;
        Ok(made
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect())
    }

    /// Decodes stored rows into elements.
    #[allow(clippy::too_many_arguments)] // the kernel's
    fn decode_rows(
        &self,
        strip: &PartBytes<'_>,
        count: usize,
        formula: Formula,
        (group, group_rows): (u64, u64),
        scales: &[f32],
        zeros: &[f32],
        dtype: Dtype,
        out: &mut [u8],
    ) -> Result<()> {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let geometry = RowGeometry {
            cols: count,
            stride: strip.stride,
            packing: self.packing,
            value: self.value.clone(),
            formula,
            group: size(group).min(count),
            rows_per_factor: size(group_rows),
            rows_per_matrix: usize::MAX,
            first: 0,
        };
        if self.order == CodeOrder::Natural {
            return Ok(kernel::dequantize_rows(
                &geometry,
                strip.bytes,
                scales,
                zeros,
                dtype,
                out,
            )?);
        }
        // as many stored rows as the output has room for: all of the matrix, or the rows of packed zero points
        let lines = out.len() / (count * dtype.bits() as usize / 8).max(1);
        let codes: Vec<u8> = (0..lines)
            .flat_map(|line| self.order.to_natural(strip.run(line)))
            .collect();
        Ok(kernel::dequantize_rows(
            &RowGeometry {
                // reordered rows are contiguous
                stride: strip.len,
                ..geometry
            },
            &codes,
            scales,
            zeros,
            dtype,
            out,
        )?)
    }
}

/// Transposes `width` rows of `count` items of `N` bytes into `count` rows of `width` items, 32 source rows at a time.
fn transpose<const N: usize>(lines: &[u8], count: usize, width: usize, out: &mut [u8]) {
    // a square of 32 x 32 elements of 4 bytes is 4 KiB
    const SIDE: usize = 32;
    let (lines, out) = (lines.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    // the source is read down its columns: 32 lines of it stay in the cache while all of their columns are written
    for first in (0..width).step_by(SIDE) {
        let last = width.min(first + SIDE);
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            for (l, cell) in (first..last).zip(&mut row[first..last]) {
                *cell = lines[l * count + i];
            }
        }
    }
}
