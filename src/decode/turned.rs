//! Weights that are stored the other way round: what comes out as a column is a stored line.
use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::kernel::{self, Form, Packing, Rows, Value, e8m0};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::factors::to_f32;
use super::grouped::CODES;
use super::scratch;

/// Rows of a tile at least: a line is read in runs of as many codes.
const LEAST: u64 = 256;

/// A stack of matrices of `lines` lines of `along` codes (part 0); element `[m, i, l]` of the output is
/// code `i` of line `l` of matrix `m`. Scales and zero points lie like the codes, one for each
/// `line_group` times `group` of them.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) matrices: u64,
    pub(crate) lines: u64,
    pub(crate) along: u64,
    pub(crate) packing: Packing,
    pub(crate) order: Order,
    pub(crate) value: Value,
    pub(crate) line_group: u64,
    pub(crate) group: u64,
    pub(crate) scales: Factor,
    pub(crate) zeros: Side,
}

/// How codes lie in a word of 32 bits, or in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the lowest bits on.
    Natural,
    /// As AWQ has them: 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on.
    Awq,
    /// Codes of 2 bits, in each byte from the highest bits on.
    HighFirst,
}

impl Order {
    /// The codes of these bytes, put into the natural order.
    pub(crate) fn undone(self, codes: &[u8]) -> Vec<u8> {
        match self {
            Self::Natural => codes.to_vec(),
            Self::Awq => natural(codes).collect(),
            Self::HighFirst => {
                let turned =
                    |byte: &u8| (0..4).fold(0, |all, i| all | (byte >> (2 * i) & 3) << (6 - 2 * i));
                codes.iter().map(turned).collect()
            }
        }
    }
}

/// Scales, by the number of their part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    /// As they are stored, or each times a number.
    Stored(usize, Dtype, Option<f32>),
    /// Bytes `s` that mean 2^(s - 128): half of an E8M0 scale, and no NaN.
    HalfExponents(usize),
}

/// Zero points, by the number of their part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    None,
    /// Packed like the codes, a line for each row of factors.
    Packed(usize),
    /// Stored one by one like the scales.
    Stored(usize, Dtype),
}

impl Turned {
    /// Codes that lie together: tiles begin at multiples of it.
    fn step(&self) -> u64 {
        self.group.max(8)
    }

    /// The parts of some rows, one for each matrix: its number, and codes from where to where.
    fn pieces(&self, rows: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let along = self.along;
        (rows.start / along..rows.end.div_ceil(along)).map(move |m| {
            let base = m * along;
            (m, rows.start.max(base) - base..(rows.end - base).min(along))
        })
    }

    fn factor_lines(&self) -> u64 {
        self.lines.div_ceil(self.line_group)
    }

    fn bytes(&self, codes: u64) -> u64 {
        self.packing
            .row_bytes(codes)
            .expect("part of a stored line")
    }

    /// Numbers of `bytes` each, one for each group of these codes.
    fn factors(&self, part: usize, bytes: u64, matrix: u64, codes: &Range<u64>) -> Span {
        let (lines, stride) = (self.factor_lines(), self.along / self.group * bytes);
        let (start, end) = (
            codes.start / self.group * bytes,
            codes.end / self.group * bytes,
        );
        Span {
            part,
            start: matrix * lines * stride + start,
            len: end - start,
            count: lines,
            stride,
        }
    }

    fn packed(&self, part: usize, lines: u64, matrix: u64, codes: &Range<u64>) -> Span {
        let stride = self.bytes(self.along);
        let (start, end) = (self.bytes(codes.start), self.bytes(codes.end));
        Span {
            part,
            start: matrix * lines * stride + start,
            len: end - start,
            count: lines,
            stride,
        }
    }
}

impl Decoder for Turned {
    fn grid(&self) -> Grid {
        Grid {
            rows: self.matrices * self.along,
            cols: self.lines,
            step: self.step(),
            least: LEAST,
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let mut spans = Spans::new();
        for (matrix, codes) in self.pieces(rows) {
            let (part, bytes) = match self.scales {
                Factor::Stored(part, dtype, _) => (part, dtype.bits() / 8),
                Factor::HalfExponents(part) => (part, 1),
            };
            spans.push(self.factors(part, bytes, matrix, &codes));
            match self.zeros {
                Side::None => {}
                Side::Packed(part) => {
                    spans.push(self.packed(part, self.factor_lines(), matrix, &codes))
                }
                Side::Stored(part, dtype) => {
                    spans.push(self.factors(part, dtype.bits() / 8, matrix, &codes))
                }
            }
            spans.push(self.packed(CODES, self.lines, matrix, &codes));
        }
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            inputs,
            rows,
            dtype,
            ..
        } = parts;
        let (mut inputs, mut out) = (inputs.iter(), out);
        let mut next = || inputs.next().expect("as many as were asked for");
        let (lines, item) = (self.lines as usize, dtype.bits() as usize / 8);
        for (_, codes) in self.pieces(rows) {
            let count = (codes.end - codes.start) as usize;
            let (now, behind) = std::mem::take(&mut out).split_at_mut(count * lines * item);
            out = behind;
            let scales = match self.scales {
                Factor::Stored(_, dtype, over) => {
                    let mut scales = self.numbers(next(), |line| to_f32(dtype, line))?;
                    over.into_iter()
                        .for_each(|over| scales.iter_mut().for_each(|scale| *scale *= over));
                    scales
                }
                Factor::HalfExponents(_) => self.numbers(next(), |line| {
                    Ok(line.iter().map(|e| half_exponent(*e)).collect())
                })?,
            };
            let zeros = match self.zeros {
                Side::None => Vec::new(),
                Side::Packed(_) => self.unpacked(next(), count)?,
                Side::Stored(_, dtype) => self.numbers(next(), |line| to_f32(dtype, line))?,
            };
            let mut made = scratch(lines, count * item)?;
            let form = if zeros.is_empty() {
                Form::Scale
            } else {
                Form::ZeroScale
            };
            self.lines(
                next(),
                count,
                form,
                (self.group, self.line_group),
                &scales,
                &zeros,
                dtype,
                &mut made,
            )?;
            match item {
                2 => turn::<2>(&made, count, lines, now),
                _ => turn::<4>(&made, count, lines, now),
            }
        }
        Ok(())
    }
}

impl Turned {
    /// Numbers that lie one by one, line behind line.
    fn numbers(
        &self,
        strip: &Strip<'_>,
        read: impl Fn(&[u8]) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        let mut numbers = Vec::new();
        for line in 0..self.factor_lines() as usize {
            numbers.extend(read(strip.run(line))?);
        }
        Ok(numbers)
    }

    /// Packed zero points, line behind line: one line for each row of factors.
    fn unpacked(&self, strip: &Strip<'_>, count: usize) -> Result<Vec<f32>> {
        let lines = self.factor_lines() as usize;
        let mut made = scratch(lines, count * 4)?;
        self.lines(
            strip,
            count,
            Form::Scale,
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

    /// Codes of some lines into elements.
    #[allow(clippy::too_many_arguments)] // the kernel's
    fn lines(
        &self,
        strip: &Strip<'_>,
        count: usize,
        form: Form,
        (group, line_group): (u64, u64),
        scales: &[f32],
        zeros: &[f32],
        dtype: Dtype,
        out: &mut [u8],
    ) -> Result<()> {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let geometry = Rows {
            cols: count,
            stride: strip.stride,
            packing: self.packing,
            value: self.value.clone(),
            form,
            group: size(group).min(count),
            rows_per_factor: size(line_group),
            rows_per_matrix: usize::MAX,
            first: 0,
        };
        if self.order == Order::Natural {
            return Ok(kernel::rows(
                &geometry,
                strip.bytes,
                scales,
                zeros,
                dtype,
                out,
            )?);
        }
        let lines = out.len() / (count * dtype.bits() as usize / 8).max(1);
        let codes: Vec<u8> = (0..lines)
            .flat_map(|line| self.order.undone(strip.run(line)))
            .collect();
        Ok(kernel::rows(
            &Rows {
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

/// The codes of words in AWQ's order, put into the natural one.
fn natural(words: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let turned = |word: &[u8; 4]| {
        let codes = kernel::eight_codes(*word, true);
        [0, 2, 4, 6].map(|i| codes[i] | codes[i + 1] << 4)
    };
    words.as_chunks().0.iter().flat_map(turned)
}

/// 2^(e - 128).
pub(super) fn half_exponent(e: u8) -> f32 {
    if e == 0 {
        f32::from_bits(0x0020_0000)
    } else {
        e8m0(e - 1)
    }
}

/// Lines of `count` items into rows of as many items as there are lines.
fn turn<const N: usize>(lines: &[u8], count: usize, width: usize, out: &mut [u8]) {
    const SIDE: usize = 32;
    let (lines, out) = (lines.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    for first in (0..width).step_by(SIDE) {
        let last = width.min(first + SIDE);
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            for (l, cell) in (first..last).zip(&mut row[first..last]) {
                *cell = lines[l * count + i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_exponents_are_exact_to_both_ends() {
        for e in 0..=255u8 {
            assert!(
                f64::from(half_exponent(e)) == 2f64.powi(i32::from(e) - 128),
                "{e}"
            );
        }
    }

    #[test]
    fn awq_order_is_undone() {
        // code i lies in nibble [0, 4, 1, 5, 2, 6, 3, 7][i]
        let stored = 0x7531_6420u32.to_le_bytes();
        let codes: Vec<u8> = natural(&stored).collect();
        assert_eq!(codes, 0x7654_3210u32.to_le_bytes());
    }
}
