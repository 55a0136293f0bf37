//! Quark's `[out, in]` weights whose codes are not in the natural order within a word or byte.
//!
//! The views put the bytes of a tile into the natural order, in which they are decoded as rows: one more pass over the codes
//! of a tile.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::{self, CodePacking};
use crate::plan::decode::{CodeOrder, PartOffset, PartView};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Rows of codes in another order within each word or byte, read in the natural order.
#[derive(Debug)]
pub(crate) struct ReorderedCodes {
    pub(crate) place: PartOffset,
    pub(crate) rows: u64,
    /// Bytes of a row: whole words.
    pub(crate) row_bytes: u64,
    pub(crate) order: CodeOrder,
}

impl PartView for ReorderedCodes {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.row_bytes)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let bytes = rows.start * self.row_bytes..rows.end * self.row_bytes;
        PartRanges::from_iter([self.place.of(PartRange::run(0, bytes))])
    }

    fn make(&self, _: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        self.order.write_natural(inputs[0].bytes, out);
        Ok(())
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
