//! Scales of one byte in cuBLAS' block layout (torchao's `is_swizzled_scales`, ComfyUI's tiles).
//!
//! A block covers 128 rows x 4 scales and is 32 lines of 16 bytes; line `l` has four scales each of the rows `l`, `l + 32`,
//! `l + 64` and `l + 96`. Blocks are row-major, so a tile reads all blocks of its rows, one contiguous run, and gathers four
//! bytes at a time.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Swizzled scales, read as rows.
#[derive(Debug)]
pub(crate) struct SwizzledScales {
    pub(crate) place: PartOffset,
    pub(crate) rows: u64,
    /// Scales of a row.
    pub(crate) groups: u64,
}

/// Bytes of a block.
const BLOCK: u64 = 512;

impl SwizzledScales {
    /// Bytes of `rows` rows of `groups` scales, including the padding of blocks; `None` if they do not fit in 64 bits.
    pub(crate) fn bytes(rows: u64, groups: u64) -> Option<u64> {
        rows.div_ceil(128)
            .checked_mul(groups.div_ceil(4))?
            .checked_mul(BLOCK)
    }

    /// The sides of a matrix of tiles of `high` by `wide`: the padded scales as 128 by 4, or each block as 32 by 16.
    pub(crate) fn sides(rows: u64, groups: u64, [high, wide]: [u64; 2]) -> [Option<u64>; 2] {
        let (down, across) = (rows.div_ceil(128), groups.div_ceil(4));
        [down.checked_mul(high), across.checked_mul(wide)]
    }
}

impl PartView for SwizzledScales {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.groups)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let high = self.groups.div_ceil(4) * BLOCK;
        PartRanges::from_iter([self.place.of(PartRange::run(
            0,
            rows.start / 128 * high..rows.end.div_ceil(128) * high,
        ))])
    }

    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let (groups, first) = (self.groups as usize, rows.start / 128);
        for (row, out) in rows.zip(out.chunks_exact_mut(groups)) {
            let block = (row / 128 - first) * self.groups.div_ceil(4);
            // line `row % 32`, and in it the four scales of the quarter of 32 rows
            let at = (block * BLOCK + row % 32 * 16 + row % 128 / 32 * 4) as usize;
            for (four, out) in inputs[0].bytes[at..]
                .chunks(BLOCK as usize)
                .zip(out.chunks_mut(4))
            {
                out.copy_from_slice(&four[..out.len()]);
            }
        }
        Ok(())
    }
}
