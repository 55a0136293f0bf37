//! Matrices that are stored the other way round: a tile is some of their columns.

use std::ops::Range;

use crate::Dtype;
use crate::catalog::quote;
use crate::error::{Error, Result};
use crate::kernel::{self, ColumnCodes, Groups, Width};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::factors::to_f32;
use super::grouped::CODES;

/// Columns of a tile at least, where they are not too long: what is read of a stored row is then a kilobyte
/// of words.
const LEAST: u64 = 256;

/// Elements that a tile of so many columns may have.
const MOST: u64 = 4 << 20;

/// A matrix of codes (part 0), each of whose columns is a row that comes out; a scale for each column and group.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Columns as stored: rows that come out.
    pub(crate) rows: u64,
    /// Elements of a column.
    pub(crate) cols: u64,
    pub(crate) codes: ColumnCodes,
    /// Stored rows of the part with the codes, and bytes of each.
    pub(crate) stored: (u64, u64),
    pub(crate) groups: u64,
    pub(crate) group_of: GroupOf,
    /// Number and dtype of the part with the scales, a row for each group.
    pub(crate) scales: (usize, Dtype),
    pub(crate) zeros: ColumnZeros,
}

/// Which group an element of a column is in.
#[derive(Debug)]
pub(crate) enum GroupOf {
    /// So many consecutive elements are a group.
    Every(u64),
    /// Another part says so for each.
    Index { part: usize, dtype: Dtype, name: Box<str> },
}

/// Zero points.
#[derive(Debug)]
pub(crate) enum ColumnZeros {
    /// One for all.
    All(f32),
    /// Packed along the stored rows like codes, one such row of so many words for each group.
    Packed { part: usize, words: u64, order: ZeroOrder, less: LessOne },
}

/// How zero points are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ZeroOrder {
    Natural(Width),
    /// Each eight in AWQ's order.
    Awq(Width),
}

/// Whether zero points are stored less one, and what becomes of the highest code then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LessOne {
    /// They are stored as they are.
    No,
    /// One is added to each; the highest becomes 0.
    Each,
    /// One is added to each in one addition of whole words, so that the highest carries into the next.
    Carried,
}

impl Decoder for Columns {
    fn grid(&self) -> Grid {
        // 32 columns of zero points are whole words
        Grid { step: 32, least: LEAST.min(MOST / self.cols.max(1)), ..Grid::new(self.rows, self.cols) }
    }

    fn shared(&self) -> Spans {
        match &self.group_of {
            GroupOf::Index { part, dtype, .. } => Spans::from_iter([Span::run(*part, 0..self.cols * dtype.bits() / 8)]),
            GroupOf::Every(_) => Spans::new(),
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let (count, stride) = self.stored;
        let codes = match self.codes {
            ColumnCodes::Down(_) => rows.start * 4..rows.end * 4,
            ColumnCodes::Bytes => rows.clone(),
            ColumnCodes::Across(width) | ColumnCodes::AwqStream(width) => words(&rows, width, stride),
            ColumnCodes::Awq4 => words(&rows, Width::Stream(4), stride),
        };
        let strided = |part, bytes: Range<u64>, count, stride| Span {
            part,
            start: bytes.start,
            len: bytes.end - bytes.start,
            count,
            stride,
        };
        let (scale, dtype) = self.scales;
        let item = dtype.bits() / 8;
        let mut spans = Spans::from_iter([
            strided(CODES, codes, count, stride),
            strided(scale, rows.start * item..rows.end * item, self.groups, self.rows * item),
        ]);
        if let ColumnZeros::Packed { part, words: per_group, order, .. } = self.zeros {
            let bytes = words(&rows, order.width(), per_group * 4);
            spans.push(strided(part, bytes, self.groups, per_group * 4));
        }
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts { shared, inputs, rows, dtype } = parts;
        let count = (rows.end - rows.start) as usize;
        let groups = self.groups as usize;
        let mut scales = vec![0.0; count * groups];
        let mut zeros = vec![0.0; count * groups];
        for g in 0..groups {
            let of_group = |factors: &mut [f32], column: usize, x| factors[column * groups + g] = x;
            for (column, scale) in to_f32(self.scales.1, inputs[1].run(g))?.into_iter().enumerate() {
                of_group(&mut scales, column, scale);
            }
            match self.zeros {
                ColumnZeros::All(zero) => (0..count).for_each(|column| of_group(&mut zeros, column, zero)),
                ColumnZeros::Packed { order, less, .. } => {
                    let words = unpacked_words(inputs[2].run(g), order.width(), less);
                    let codes = order.codes(&words, count);
                    let most = ((1u16 << order.width().bits()) - 1) as u8;
                    for (column, code) in codes.into_iter().enumerate() {
                        let code = if less == LessOne::Each { code.wrapping_add(1) & most } else { code };
                        of_group(&mut zeros, column, f32::from(code));
                    }
                }
            }
        }
        let geometry = kernel::Columns {
            count,
            depth: self.cols as usize,
            stride: inputs[0].stride,
            codes: self.codes,
            groups: self.groups_of(shared)?,
            scales,
            zeros,
        };
        Ok(kernel::columns(&geometry, inputs[0].bytes, dtype, out)?)
    }
}

/// The bytes of the words that hold these codes; the first is the first of 32.
fn words(codes: &Range<u64>, width: Width, row_bytes: u64) -> Range<u64> {
    let at = |code: u64| code.div_ceil(32) * u64::from(width.bits()) * 4;
    at(codes.start)..at(codes.end).min(row_bytes)
}

impl ZeroOrder {
    fn width(self) -> Width {
        match self {
            Self::Natural(width) | Self::Awq(width) => width,
        }
    }

    /// The codes of so many columns.
    fn codes(self, words: &[[u8; 4]], count: usize) -> Vec<u8> {
        let place = |column: usize| match self {
            Self::Natural(_) => column,
            Self::Awq(_) => column / 8 * 8 + kernel::AWQ[column % 8],
        };
        if let Width::Stream(4) | Width::Planar(4) = self.width() {
            // mostly so: eight codes of a word at once
            let places: [usize; 8] = std::array::from_fn(place);
            let codes = words.iter().flat_map(|word| {
                let word = u32::from_le_bytes(*word);
                places.map(|at| (word >> (4 * at)) as u8 & 15)
            });
            return codes.chain(std::iter::repeat(0)).take(count).collect();
        }
        (0..count).map(|column| kernel::packed_code(words, self.width(), place(column))).collect()
    }
}

/// The words of a group's zero points, one added to each where that is done before they are unpacked.
fn unpacked_words(bytes: &[u8], width: Width, less: LessOne) -> Vec<[u8; 4]> {
    // a one in the lowest bit of each code
    let ones = u32::MAX / ((1u64 << width.bits()) - 1) as u32;
    let words = bytes.as_chunks::<4>().0.iter();
    words
        .map(|word| match less {
            LessOne::Carried => u32::from_le_bytes(*word).wrapping_add(ones).to_le_bytes(),
            LessOne::No | LessOne::Each => *word,
        })
        .collect()
}

impl Columns {
    /// Which group each element of a column is in: runs, where they are long enough to be worth it.
    fn groups_of(&self, shared: &[Strip<'_>]) -> Result<Groups> {
        let (part, name) = match &self.group_of {
            GroupOf::Every(size) => {
                let ends =
                    (1..=self.groups).map(|g| (size.saturating_mul(g).min(self.cols) as usize, (g - 1) as usize));
                return Ok(Groups::Runs(ends.collect()));
            }
            GroupOf::Index { dtype, name, .. } => (dtype, name),
        };
        let bytes = shared[0].bytes;
        let index: Vec<u32> = match part {
            Dtype::I64 => bytes.as_chunks().0.iter().map(|b| saturated(i64::from_le_bytes(*b))).collect(),
            _ => bytes.as_chunks().0.iter().map(|b| saturated(i32::from_le_bytes(*b).into())).collect(),
        };
        if let Some(k) = index.iter().position(|g| u64::from(*g) >= self.groups) {
            let (name, groups) = (quote(name), self.groups);
            return Err(Error::malformed(format!("tensor {name}: element {k} is in no group of {groups}")));
        }
        let mut runs = Vec::new();
        for (k, g) in index.iter().enumerate() {
            if index.get(k + 1) != Some(g) {
                runs.push((k + 1, *g as usize));
                if runs.len() > 16 + index.len() / 16 {
                    return Ok(Groups::Each(index));
                }
            }
        }
        Ok(Groups::Runs(runs))
    }
}

/// A group's number; one that is none for numbers out of range.
fn saturated(group: i64) -> u32 {
    u32::try_from(group).unwrap_or(u32::MAX)
}
