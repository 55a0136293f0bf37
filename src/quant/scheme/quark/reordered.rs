//! Quark's `[out, in]` weights whose codes are not in the natural order within a word or byte.
//!
//! The bytes of a tile are put into the natural order, and then decoded as rows: one extra pass over the codes of a tile.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::error::Result;
use crate::kernel::{self, CodePacking};
use crate::plan::{DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};
use crate::quant::decode::{CodeOrder, Grouped, PartOffset, PartView};

/// As [`Grouped`], with the codes of each word or byte in another order.
#[derive(Debug)]
pub(crate) struct ReorderedCodes {
    pub(crate) inner: Grouped,
    pub(crate) order: CodeOrder,
}

impl Decoder for ReorderedCodes {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (codes, factors) = inputs.split_last().expect("`inputs` names the codes last");
        let codes = self.order.to_natural(codes.bytes);
        let inputs: Vec<_> = factors
            .iter()
            .copied()
            .chain([PartBytes::whole(&codes)])
            .collect();
        self.inner.decode(
            DecodeInput {
                shared,
                inputs: &inputs,
                rows,
                dtype,
            },
            out,
        )
    }
}

/// Packed zero points, one for each row, read as one byte each.
#[derive(Debug)]
pub(crate) struct PackedZeroPoints {
    pub(crate) place: PartOffset,
    pub(crate) rows: u64,
    pub(crate) order: CodeOrder,
    /// Zero points in a word or byte.
    pub(crate) per_item: u64,
    pub(crate) bits: u64,
    /// Whether zero points are in two's complement.
    pub(crate) signed: bool,
}

impl PartView for PackedZeroPoints {
    fn grid(&self) -> Grid {
        Grid {
            step: self.per_item,
            ..Grid::new(self.rows, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let item = self.per_item * self.bits / 8;
        let bytes = rows.start / self.per_item * item..rows.end.div_ceil(self.per_item) * item;
        PartRanges::from_iter([self.place.of(PartRange::run(0, bytes))])
    }

    fn make(&self, _: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let (codes, bits) = (self.order.to_natural(inputs[0].bytes), self.bits as u32);
        for (row, out) in out.iter_mut().enumerate() {
            let code = kernel::row_code(CodePacking::Stream(bits), bits, &codes, row);
            let negative = self.signed && code >> (bits - 1) == 1;
            *out = if negative {
                // the sign is extended to the byte, which is then read as I8
                code | u8::MAX << bits
            } else {
                code
            };
        }
        Ok(())
    }
}
