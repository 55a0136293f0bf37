//! Matrices that are stored the other way round: a tile is some of their columns.

use std::ops::Range;

use crate::Dtype;
use crate::catalog::quote;
use crate::error::{Error, Result};
use crate::kernel::{self, ColumnCodes, Groups, Width};
use crate::plan::{Decoder, Grid, Parts, Span, Spans, Strip};

use super::factors::append;
use super::grouped::CODES;

mod zeros;

pub(crate) use zeros::{ColumnZeros, LessOne, ZeroOrder};

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
    Index {
        part: usize,
        dtype: Dtype,
        name: Box<str>,
    },
}

impl Decoder for Columns {
    fn grid(&self) -> Grid {
        // 32 columns of zero points are whole words
        Grid {
            step: 32,
            least: LEAST.min(MOST / self.cols.max(1)),
            ..Grid::new(self.rows, self.cols)
        }
    }

    fn shared(&self) -> Spans {
        match &self.group_of {
            GroupOf::Index { part, dtype, .. } => {
                Spans::from_iter([Span::run(*part, 0..self.cols * dtype.bits() / 8)])
            }
            GroupOf::Every(_) => Spans::new(),
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let (count, stride) = self.stored;
        let codes = match self.codes {
            ColumnCodes::Down(_) => rows.start * 4..rows.end * 4,
            ColumnCodes::Bytes => rows.clone(),
            ColumnCodes::Across(width) | ColumnCodes::AwqStream(width) => {
                words(&rows, width, stride)
            }
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
            strided(
                scale,
                rows.start * item..rows.end * item,
                self.groups,
                self.rows * item,
            ),
        ]);
        if let ColumnZeros::Packed {
            part,
            words: per_group,
            order,
            ..
        } = self.zeros
        {
            let bytes = words(&rows, order.width(), per_group * 4);
            spans.push(strided(part, bytes, self.groups, per_group * 4));
        }
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let count = (rows.end - rows.start) as usize;
        let groups = self.groups as usize;
        let mut scales = Vec::with_capacity(count * groups);
        for g in 0..groups {
            append(&mut scales, self.scales.1, inputs[1].run(g))?;
        }
        let zeros = self.zeros.of(inputs, count, groups);
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

impl Columns {
    /// Which group each element of a column is in: runs, where they are long enough to be worth it.
    fn groups_of(&self, shared: &[Strip<'_>]) -> Result<Groups> {
        let (part, name) = match &self.group_of {
            GroupOf::Every(size) => {
                let ends = (1..=self.groups).map(|g| {
                    (
                        size.saturating_mul(g).min(self.cols) as usize,
                        (g - 1) as usize,
                    )
                });
                return Ok(Groups::Runs(ends.collect()));
            }
            GroupOf::Index { dtype, name, .. } => (dtype, name),
        };
        let bytes = shared[0].bytes;
        let index: Vec<u32> = match part {
            Dtype::I64 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| saturated(i64::from_le_bytes(*b)))
                .collect(),
            _ => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| saturated(i32::from_le_bytes(*b).into()))
                .collect(),
        };
        if let Some(k) = index.iter().position(|g| u64::from(*g) >= self.groups) {
            let (name, groups) = (quote(name), self.groups);
            return Err(Error::malformed(format!(
                "tensor {name}: element {k} is in no group of {groups}"
            )));
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
