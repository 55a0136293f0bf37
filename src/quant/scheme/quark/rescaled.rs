//! Weights that Quark quantised in two steps, first to FP8 and then to integers: the result of the integers times the scale
//! of the FP8.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::decode::{through_f32, to_f32};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRange, PartRanges};

/// The output of another decoder in F32, times a factor; one rounding at the end.
#[derive(Debug)]
pub(crate) struct Rescaled {
    pub(crate) inner: Box<dyn Decoder>,
    /// Index and dtype of the part with the factor.
    pub(crate) factor: (usize, Dtype),
    /// Whether each row has a factor of its own.
    pub(crate) by_row: bool,
}

impl Decoder for Rescaled {
    fn numbers(&self) -> Option<CodeNumbers> {
        self.inner.numbers()
    }

    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let (part, dtype) = self.factor;
        let (item, mut spans) = (dtype.bits() / 8, self.inner.inputs(rows.clone()));
        spans.push(PartRange::run(
            part,
            if self.by_row {
                rows.start * item..rows.end * item
            } else {
                0..item
            },
        ));
        spans
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let (factors, inputs) = parts
            .inputs
            .split_last()
            .expect("`inputs` names the factors last");
        let factors = to_f32(self.factor.1, factors.bytes)?;
        let row = self.inner.grid().cols as usize;
        let parts = DecodeInput { inputs, ..parts };
        through_f32(&*self.inner, parts, out, |values| {
            // a single factor is repeated for every row
            for (cells, factor) in values.chunks_exact_mut(row).zip(factors.iter().cycle()) {
                for cell in cells {
                    *cell = (f32::from_le_bytes(*cell) * factor).to_le_bytes();
                }
            }
            Ok(())
        })
    }
}
