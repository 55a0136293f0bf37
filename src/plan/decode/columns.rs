//! Matrices of integer codes that are stored input-major, `[in, out]`, and decoded to `[out, in]`: GPTQ, AWQ, EETQ.
//!
//! An output row is a stored column. A tile is a range of columns: it reads the same bytes of every stored row, which is a
//! strided range. `dequantize_columns` unpacks words of 32 bits and transposes in one pass over registers, because in
//! GPTQ's layout a word holds codes of one column (`ColumnCodes::Down`), which no decoder of rows can use.
//!
//! `Transposed` reads input-major matrices too. It covers stacks, tables of code values and other packings by decoding
//! stored rows and then transposing, in two passes; it is used where GPTQ's words do not occur. One decoder for both would
//! make GPTQ slower or need this kernel for every packing.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, CodeWidth, ColumnCodes, ColumnGroups};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};
use crate::read::catalog::quote;

use super::factors::append;
use super::grouped::CODES;

mod zero_points;

pub(crate) use zero_points::{ColumnZeros, ZeroPointBias, ZeroPointOrder};

/// Minimum columns of a tile, so that the run of each stored row is at least 1 KiB of words.
const LEAST: u64 = 256;

/// Maximum elements of a tile of `LEAST` columns; longer columns make tiles of fewer columns.
const MOST: u64 = 4 << 20;

/// A matrix of codes (part 0), stored `[in, out]`; scales `[groups, out]`.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Stored columns: rows of the output.
    pub(crate) rows: u64,
    /// Elements of a stored column: columns of the output.
    pub(crate) cols: u64,
    pub(crate) codes: ColumnCodes,
    /// Stored rows of the codes, and bytes of a stored row.
    pub(crate) stored: (u64, u64),
    pub(crate) groups: u64,
    pub(crate) group_of: GroupOf,
    /// Index and dtype of the part with the scales.
    pub(crate) scales: (usize, Dtype),
    pub(crate) zeros: ColumnZeros,
}

/// How elements of a column are assigned to groups.
#[derive(Debug)]
pub(crate) enum GroupOf {
    /// Groups of this many consecutive elements.
    Every(u64),
    /// Another part (`g_idx`, one I32 or I64 per element) names the group: act-order.
    Index {
        part: usize,
        dtype: Dtype,
        name: Box<str>,
    },
}

impl Decoder for Columns {
    fn numbers(&self) -> Option<CodeNumbers> {
        let bits = match self.codes {
            ColumnCodes::Down(width)
            | ColumnCodes::Across(width)
            | ColumnCodes::AwqStream(width) => width.bits(),
            ColumnCodes::Awq4 => 4,
            ColumnCodes::Bytes => 8,
        };
        let group = match self.group_of {
            GroupOf::Every(group) => group,
            // the groups of an index have as many columns as consecutive ones
            GroupOf::Index { .. } => self.cols.div_ceil(self.groups.max(1)),
        };
        Some(CodeNumbers::packed_integers(bits, Some(group)))
    }

    fn grid(&self) -> Grid {
        // 32 packed zero points of any width fill whole words
        Grid {
            step: 32,
            // whole matrices were fastest with 256 columns per tile, although the kernel alone is faster with 64
            // (experiment 20)
            least: LEAST.min(MOST / self.cols.max(1)),
            ..Grid::new(self.rows, self.cols)
        }
    }

    fn shared(&self) -> PartRanges {
        match &self.group_of {
            GroupOf::Index { part, dtype, .. } => {
                PartRanges::from_iter([PartRange::run(*part, 0..self.cols * dtype.bits() / 8)])
            }
            GroupOf::Every(_) => PartRanges::new(),
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let (count, stride) = self.stored;
        let codes = match self.codes {
            // a word holds codes of one column, so that a column is 4 bytes of every stored row
            ColumnCodes::Down(_) => rows.start * 4..rows.end * 4,
            ColumnCodes::Bytes => rows.clone(),
            // words hold codes of neighbouring outputs, so that a tile of 32 columns begins at a word for every width
            ColumnCodes::Across(width) | ColumnCodes::AwqStream(width) => {
                words(&rows, width, stride)
            }
            ColumnCodes::Awq4 => words(&rows, CodeWidth::Stream(4), stride),
        };
        let (scale, dtype) = self.scales;
        let item = dtype.bits() / 8;
        let mut spans = PartRanges::from_iter([
            PartRange::strided(CODES, codes, count, stride),
            PartRange::strided(
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
            spans.push(PartRange::strided(part, bytes, self.groups, per_group * 4));
        }
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let count = (rows.end - rows.start) as usize;
        let groups = self.groups as usize;
        let mut scales = Vec::with_capacity(count * groups);
        // stored scales are `[groups, out]`, so that a tile has a run per group
        for g in 0..groups {
            append(&mut scales, self.scales.1, inputs[1].run(g))?;
        }
        let zeros = self.zeros.of(inputs, count, groups);
        let geometry = kernel::ColumnGeometry {
            count,
            depth: self.cols as usize,
            stride: inputs[0].stride,
            codes: self.codes,
            groups: self.groups_of(shared)?,
            scales,
            zeros,
        };
        Ok(kernel::dequantize_columns(
            &geometry,
            inputs[0].bytes,
            dtype,
            out,
        )?)
    }
}

/// The bytes of the words that hold these codes; `codes.start` is a multiple of 32.
fn words(codes: &Range<u64>, width: CodeWidth, row_bytes: u64) -> Range<u64> {
    let at = |code: u64| code.div_ceil(32) * u64::from(width.bits()) * 4;
    at(codes.start)..at(codes.end).min(row_bytes)
}

impl Columns {
    /// The group of each element of a column, as runs where they are few: the kernel then looks factors up per run, not per
    /// element.
    fn groups_of(&self, shared: &[PartBytes<'_>]) -> Result<ColumnGroups> {
        let (part, name) = match &self.group_of {
            GroupOf::Every(size) => {
                // the last group may be shorter
                let ends = (1..=self.groups).map(|g| {
                    (
                        size.saturating_mul(g).min(self.cols) as usize,
                        (g - 1) as usize,
                    )
                });
                return Ok(ColumnGroups::Runs(ends.collect()));
            }
            GroupOf::Index { dtype, name, .. } => (dtype, name),
        };
        let bytes = shared[0].bytes;
        let value = |at: usize| -> i64 {
            match part {
                Dtype::I64 => i64::from_le_bytes(bytes.as_chunks().0[at]),
                _ => i32::from_le_bytes(bytes.as_chunks().0[at]).into(),
            }
        };
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
            let (name, groups, group) = (quote(name), self.groups, value(k));
            return Err(Error::unexplained(format!(
                "tensor {name}: the group index of column {k} is {group}, and there are {groups} groups"
            )));
        }
        let mut runs = Vec::new();
        for (k, g) in index.iter().enumerate() {
            if index.get(k + 1) != Some(g) {
                runs.push((k + 1, *g as usize));
                if runs.len() > 16 + index.len() / 16 {
                    return Ok(ColumnGroups::Each(index));
                }
            }
        }
        Ok(ColumnGroups::Runs(runs))
    }
}

/// The number of a group; `u32::MAX`, which is refused, if it is out of range.
fn saturated(group: i64) -> u32 {
    u32::try_from(group).unwrap_or(u32::MAX)
}
