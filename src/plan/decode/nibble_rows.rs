//! Rows of 4-bit codes of which two share a stored row: row `2k` is in the low nibbles of stored row `k`, row `2k + 1` in
//! the high ones. ModelOpt packs along the outputs in this way.
//!
//! Each output row reads all bytes of its stored row and keeps one nibble of each; tiles are multiples of two rows, so that
//! no stored row is read twice.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::{self, CodePacking, RowGeometry};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRange, PartRanges};

use super::grouped::{CODES, Grouped};

/// Like [`Grouped`], with two rows in a stored row.
#[derive(Debug)]
pub(crate) struct NibbleRows {
    /// Its packing is ignored.
    pub(crate) inner: Grouped,
}

impl Decoder for NibbleRows {
    fn numbers(&self) -> Option<CodeNumbers> {
        let inner = self.inner.numbers()?;
        Some(CodeNumbers {
            bits: 4,
            is_packed: true,
            ..inner
        })
    }

    fn grid(&self) -> Grid {
        Grid {
            step: 2,
            ..self.inner.grid()
        }
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let inner = &self.inner;
        let mut spans = PartRanges::new();
        spans.extend(
            inner
                .scales
                .factors()
                .map(|f| f.span(&rows, inner.cols, inner.matrix_rows)),
        );
        spans.push(PartRange::run(
            CODES,
            rows.start / 2 * inner.cols..rows.end.div_ceil(2) * inner.cols,
        ));
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (inner, mut left) = (&self.inner, inputs.iter());
        let scales = inner.scales(shared, &mut left, &rows)?;
        let codes = left.next().expect("`inputs` names the codes last").bytes;
        let cols = inner.cols as usize;
        let group = inner.groups().0.min(inner.cols) as usize;
        let factor = |row: u64| match inner.scales.factors() {
            Some(factors) => {
                factors
                    .factor_rows(&(row..row + 1), inner.matrix_rows)
                    .start
            }
            None => 0,
        };
        let row_bytes = (inner.cols * dtype.bits() / 8) as usize;
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(row_bytes)) {
            let geometry = RowGeometry {
                cols,
                stride: cols,
                // a plane of one-byte words: bits 0 to 3 for even rows, 4 to 7 for odd ones
                packing: CodePacking::Plane(1, 4 * (row % 2) as u32, 4),
                value: inner.codes.value.clone(),
                formula: inner.formula,
                group,
                // one row at a time: its factors are its own
                rows_per_factor: usize::MAX,
                rows_per_matrix: usize::MAX,
                first: 0,
            };
            let codes = &codes[(row / 2 - rows.start / 2) as usize * cols..][..cols];
            // factors were loaded from the tile's first row on
            let skipped = (factor(row) - factor(rows.start)) as usize * geometry.groups();
            kernel::dequantize_rows(&geometry, codes, &scales[skipped..], &[], dtype, out)?;
        }
        Ok(())
    }
}
