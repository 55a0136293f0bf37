//! Weights that were smoothed before they were quantised: each column is multiplied by its factor, after a low-rank part was
//! added.
//!
//! The inner decoder computes the rows of a tile in F32; factors and low-rank part are applied to them in memory, so that
//! there is a single rounding at the end.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRange, PartRanges};

use super::factors::to_f32;
use super::through_f32::through_f32;

/// `(inner + b · a) * columns`, in F32, with one rounding at the end.
#[derive(Debug)]
pub(crate) struct Smoothed {
    pub(crate) inner: Box<dyn Decoder>,
    /// One factor per column, if there are any: index and dtype of the part.
    pub(crate) columns: Option<(usize, Dtype)>,
    pub(crate) low_rank: Option<LowRank>,
}

/// The low-rank part `b · a`: `a` is `[rank, cols]`, `b` is `[rows, rank]`; each with index and dtype of its part.
#[derive(Debug)]
pub(crate) struct LowRank {
    pub(crate) rank: u64,
    pub(crate) a: (usize, Dtype),
    pub(crate) b: (usize, Dtype),
}

impl Decoder for Smoothed {
    fn numbers(&self) -> Option<CodeNumbers> {
        self.inner.numbers()
    }

    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        let (mut spans, cols) = (self.inner.shared(), self.inner.grid().cols);
        let whole = |(part, dtype): (usize, Dtype), rows| {
            PartRange::run(part, 0..rows * cols * dtype.bits() / 8)
        };
        spans.extend(self.columns.map(|columns| whole(columns, 1)));
        spans.extend(self.low_rank.as_ref().map(|low| whole(low.a, low.rank)));
        spans
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut spans = self.inner.inputs(rows.clone());
        if let Some(LowRank {
            rank,
            b: (part, dtype),
            ..
        }) = self.low_rank
        {
            let row = rank * dtype.bits() / 8;
            spans.push(PartRange::run(part, rows.start * row..rows.end * row));
        }
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput { shared, inputs, .. } = parts;
        let cols = self.inner.grid().cols as usize;
        let own = usize::from(self.columns.is_some()) + usize::from(self.low_rank.is_some());
        // own ranges come last in both lists, so that the inner decoder gets the ranges that it named
        let (shared, own_shared) = shared.split_at(shared.len() - own);
        let (inputs, b) = inputs.split_at(inputs.len() - usize::from(self.low_rank.is_some()));
        let mut own_shared = own_shared.iter();
        let columns = match (self.columns, &mut own_shared) {
            (Some((_, dtype)), own_shared) => {
                to_f32(dtype, own_shared.next().map_or(&[][..], |s| s.bytes))?
            }
            (None, _) => Vec::new(),
        };
        let parts = DecodeInput {
            shared,
            inputs,
            ..parts
        };
        through_f32(&*self.inner, parts, out, |values| {
            if let Some(low) = &self.low_rank {
                let a = to_f32(low.a.1, own_shared.next().map_or(&[][..], |s| s.bytes))?;
                let b = to_f32(low.b.1, b[0].bytes)?;
                let mut sum = vec![0.0f32; cols];
                for (row, b) in values.chunks_mut(cols).zip(b.chunks(low.rank as usize)) {
                    // summed over the ranks before it is added to the row, in the order that `smooth.rs` documents
                    sum.fill(0.0);
                    for (b, a) in b.iter().zip(a.chunks(cols)) {
                        sum.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
                    }
                    for (cell, sum) in row.iter_mut().zip(&sum) {
                        *cell = (f32::from_le_bytes(*cell) + sum).to_le_bytes();
                    }
                }
            }
            if !columns.is_empty() {
                for row in values.chunks_mut(cols) {
                    for (cell, factor) in row.iter_mut().zip(&columns) {
                        *cell = (f32::from_le_bytes(*cell) * factor).to_le_bytes();
                    }
                }
            }
            Ok(())
        })
    }
}
