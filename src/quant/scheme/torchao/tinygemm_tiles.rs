//! 4-bit codes in tiles of 8 rows, the layout of PyTorch's tinygemm kernels on CUDA.
//!
//! For each `16 * inner` columns a tile has 32 lines of `inner / 2` words of 32 bits, four lines per row. Word `w` of line `l`
//! of a row has the columns `32w + 2l + 8i` and `32w + 2l + 8i + 1` for `i` in 0 to 3: the even columns in its lower half, the
//! odd ones in its upper half. A tile is contiguous; the view gathers a row from its four lines of each step.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Tiled codes, read as rows of nibbles, the lower one first.
#[derive(Debug)]
pub(crate) struct TinygemmTiles {
    pub(crate) place: PartOffset,
    /// Rows of all matrices; rows of one matrix; both without the padding of the last tile.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    /// Columns including padding: a multiple of `16 * inner`.
    pub(crate) padded_cols: u64,
    /// torchao's `inner_k_tiles`: 2, 4 or 8.
    pub(crate) inner: u64,
}

impl TinygemmTiles {
    /// The number of the tile that contains a row.
    fn tile(&self, row: u64) -> u64 {
        row / self.matrix_rows * self.matrix_rows.div_ceil(8) + row % self.matrix_rows / 8
    }
}

impl PartView for TinygemmTiles {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.padded_cols / 2)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let tile = self.padded_cols * 4;
        PartRanges::from_iter([self.place.of(PartRange::run(
            0,
            self.tile(rows.start) * tile..(self.tile(rows.end - 1) + 1) * tile,
        ))])
    }

    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let (first, tile, words) = (
            self.tile(rows.start),
            self.padded_cols as usize * 4,
            self.inner as usize / 2,
        );
        for (row, out) in rows.zip(out.chunks_exact_mut(self.padded_cols as usize / 2)) {
            let tile = &inputs[0].bytes[(self.tile(row) - first) as usize * tile..][..tile];
            // the 32 lines are the threads of a warp, four for each of the eight rows
            let line = (row % self.matrix_rows % 8) as usize * 4;
            for (lines, out) in tile
                .chunks_exact(32 * words * 4)
                .zip(out.chunks_exact_mut(words * 16))
            {
                for l in 0..4 {
                    let line = &lines[(line + l) * words * 4..][..words * 4];
                    for ([a, b, c, d], out) in
                        line.as_chunks().0.iter().zip(out.chunks_exact_mut(16))
                    {
                        let (even, odd) = (
                            [a & 15, a >> 4, b & 15, b >> 4],
                            [c & 15, c >> 4, d & 15, d >> 4],
                        );
                        for (i, (even, odd)) in even.into_iter().zip(odd).enumerate() {
                            out[l + 4 * i] = even | odd << 4;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
