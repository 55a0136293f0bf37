//! Rows of codes of which two share a stored row, a nibble each.
use std::ops::Range;

use crate::error::Result;
use crate::kernel::{self, Packing, Rows};
use crate::plan::{Decoder, Grid, Parts, Span, Spans};

use super::grouped::{CODES, Grouped};

/// As [`Grouped`], but row `2k` is in the low nibbles of stored row `k`, and row `2k + 1` in the high ones.
#[derive(Debug)]
pub(crate) struct Paired {
    /// Its packing is not looked at.
    pub(crate) inner: Grouped,
}

impl Decoder for Paired {
    fn grid(&self) -> Grid {
        Grid {
            step: 2,
            ..self.inner.grid()
        }
    }

    fn shared(&self) -> Spans {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let inner = &self.inner;
        let mut spans = Spans::new();
        spans.extend(
            inner
                .scales
                .factors()
                .map(|f| f.span(&rows, inner.cols, inner.matrix_rows)),
        );
        spans.push(Span::run(
            CODES,
            rows.start / 2 * inner.cols..rows.end.div_ceil(2) * inner.cols,
        ));
        spans
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (inner, mut left) = (&self.inner, inputs.iter());
        let scales = inner.scales(shared, &mut left, &rows)?;
        let codes = left.next().expect("the codes were asked for last").bytes;
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
            let geometry = Rows {
                cols,
                stride: cols,
                packing: Packing::Plane(1, 4 * (row % 2) as u32, 4),
                value: inner.codes.value.clone(),
                form: inner.form,
                group,
                rows_per_factor: usize::MAX,
                rows_per_matrix: usize::MAX,
                first: 0,
            };
            let codes = &codes[(row / 2 - rows.start / 2) as usize * cols..][..cols];
            let skipped = (factor(row) - factor(rows.start)) as usize * geometry.groups();
            kernel::rows(&geometry, codes, &scales[skipped..], &[], dtype, out)?;
        }
        Ok(())
    }
}
