//! AWQ's `gemv` layout: rows of 4-bit codes, padded rows of scales, packed zero points.
//!
//! A tile reads one contiguous run of each part. Padding is dropped from scales and zero points before the kernel runs; they
//! are a small share of the bytes.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, CodePacking, CodeValue, Formula, RowGeometry};
use crate::plan::decode::{CODES, to_f32};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRange, PartRanges};

/// Codes `[rows, cols]` of 4 bits (part 0), scales `[rows, padded_groups]` (part 1), zero points of 4 bits
/// `[rows, padded_groups]` (part 2).
#[derive(Debug)]
pub(crate) struct GemvRows {
    pub(crate) rows: u64,
    /// Elements of a row: a multiple of 8.
    pub(crate) cols: u64,
    /// Elements that share a scale.
    pub(crate) group: u64,
    /// Stored scales of a row, including padding: a multiple of 8.
    pub(crate) padded_groups: u64,
    pub(crate) scales: Dtype,
}

impl Decoder for GemvRows {
    fn numbers(&self) -> Option<CodeNumbers> {
        Some(CodeNumbers::packed_integers(4, Some(self.group)))
    }

    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.cols)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let run = |part, bytes: u64| PartRange::run(part, rows.start * bytes..rows.end * bytes);
        PartRanges::from_iter([
            run(CODES, self.cols / 2),
            run(1, self.padded_groups * self.scales.bits() / 8),
            run(2, self.padded_groups / 2),
        ])
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput { inputs, dtype, .. } = parts;
        let (groups, padded) = (
            self.cols.div_ceil(self.group) as usize,
            self.padded_groups as usize,
        );
        let scales = to_f32(self.scales, inputs[1].bytes)?;
        let scales: Vec<f32> = scales
            .chunks(padded)
            .flat_map(|row| &row[..groups])
            .copied()
            .collect();
        let words = inputs[2].bytes.as_chunks::<4>().0;
        // zero points are in the natural order here, unlike the zero points of `gemm`
        let codes = |row: &[[u8; 4]]| -> Vec<u8> {
            row.iter()
                .flat_map(|word| kernel::unpack_8_nibbles(*word, false))
                .take(groups)
                .collect()
        };
        let zeros: Vec<f32> = words
            .chunks(padded / 8)
            .flat_map(codes)
            .map(f32::from)
            .collect();
        let geometry = RowGeometry {
            cols: self.cols as usize,
            stride: self.cols as usize / 2,
            packing: CodePacking::LowNibbles,
            value: CodeValue::Unsigned,
            formula: Formula::ZeroScale,
            group: self.group.min(self.cols) as usize,
            rows_per_factor: 1,
            rows_per_matrix: self.rows as usize,
            first: 0,
        };
        Ok(kernel::dequantize_rows(
            &geometry,
            inputs[0].bytes,
            &scales,
            &zeros,
            dtype,
            out,
        )?)
    }
}
