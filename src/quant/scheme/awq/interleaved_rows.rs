//! Four rows of 4-bit codes interleaved: `gemv_fast` of AutoAWQ, and llm-awq's own files.
//!
//! For each 64 columns there are 32 bytes of each of the four rows. In each half of those 32 bytes, nibble `8a + 4c + b` is
//! column `8b + 2a + c`. The view puts the nibbles of four rows into the natural order; a tile is a multiple of four rows
//! and reads one contiguous run.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Interleaved codes, read as rows of nibbles, the lower one first.
#[derive(Debug)]
pub(super) struct InterleavedRows {
    pub(crate) place: PartOffset,
    /// A multiple of 4.
    pub(crate) rows: u64,
    /// A multiple of 64.
    pub(crate) cols: u64,
}

impl PartView for InterleavedRows {
    fn grid(&self) -> Grid {
        Grid {
            step: 4,
            ..Grid::new(self.rows, self.cols / 2)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let row = self.cols / 2;
        PartRanges::from_iter([self
            .place
            .of(PartRange::run(0, rows.start * row..rows.end * row))])
    }

    fn make(&self, _: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let row = self.cols as usize / 2;
        for (four, out) in inputs[0]
            .bytes
            .chunks_exact(4 * row)
            .zip(out.chunks_exact_mut(4 * row))
        {
            for (k, block) in four.as_chunks::<128>().0.iter().enumerate() {
                for (i, half) in block.as_chunks::<16>().0.iter().enumerate() {
                    // two halves of 16 bytes for each of the four rows
                    let to = i / 2 * row + k * 32 + i % 2 * 16;
                    deinterleave(half, out[to..][..16].as_mut_array().expect("sixteen bytes"));
                }
            }
        }
        Ok(())
    }
}

/// Half of a row's 32 bytes, in the natural order.
fn deinterleave(half: &[u8; 16], out: &mut [u8; 16]) {
    let nibble = |at: usize| half[at / 2] >> (at % 2 * 4) & 15;
    for (byte, out) in out.iter_mut().enumerate() {
        // columns 8b + 2a and 8b + 2a + 1
        let (b, a) = (byte / 4, byte % 4);
        *out = nibble(8 * a + b) | nibble(8 * a + 4 + b) << 4;
    }
}
