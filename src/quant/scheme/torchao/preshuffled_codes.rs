//! 4-bit codes in the order of Hopper's matrix instructions, so that a GPU thread loads all of its operands at once:
//! CUTLASS' memory reordering atoms, over 16 rows each.
//!
//! Tiles of 16 rows are contiguous, one column of tiles after another. Within a tile, element `(r, c)` is the nibble whose
//! number is the sum of a row term and a column term:
//!
//! | inputs | tile columns | row term | column term |
//! |---|---|---|---|
//! | BF16 | 16 | `r % 8 * 32 + r / 8` | `c % 2 * 4 + c / 2 % 4 * 8 + c / 8 * 2` |
//! | FP8 | 32 | `r % 8 * 64 + r / 8 * 4` | `c % 4 + c / 4 % 4 * 16 + c / 16 * 8` |
//!
//! A range of rows is therefore a strided range: the same part of every column of tiles.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView, split_by_matrix};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Rows of a tile.
const TILE_ROWS: u64 = 16;

/// Preshuffled codes, read as rows.
#[derive(Debug)]
pub(crate) struct PreshuffledCodes {
    pub(crate) place: PartOffset,
    /// Rows of all matrices and of one, a multiple of 16.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    /// A multiple of a tile's columns.
    pub(crate) cols: u64,
    pub(crate) output: PreshuffledOutput,
}

/// The output of a [`PreshuffledCodes`] view.
#[derive(Debug)]
pub(crate) enum PreshuffledOutput {
    /// The codes, two per byte, the lower nibble first. Reads the order for BF16.
    Codes,
    /// The products of code and scale, in E4M3. Reads the order for FP8. For each `group` columns of a row eight products
    /// are stored: its scale times -8, -7, … -1, each rounded. The highest bit of a code is the sign and the others the
    /// index of the product; code 0 is 0.
    Products { products: PartOffset, group: u64 },
}

impl PreshuffledCodes {
    /// Columns of a tile of 16 rows.
    pub(crate) fn wide(output: &PreshuffledOutput) -> u64 {
        if matches!(output, PreshuffledOutput::Codes) {
            16
        } else {
            32
        }
    }

    /// The number of the nibble of element `(r, c)` of a tile.
    fn at(&self, r: usize, c: usize) -> usize {
        match self.output {
            PreshuffledOutput::Codes => r % 8 * 32 + r / 8 + c % 2 * 4 + c / 2 % 4 * 8 + c / 8 * 2,
            PreshuffledOutput::Products { .. } => {
                r % 8 * 64 + r / 8 * 4 + c % 4 + c / 4 % 4 * 16 + c / 16 * 8
            }
        }
    }
}

impl PartView for PreshuffledCodes {
    fn grid(&self) -> Grid {
        let row = if matches!(self.output, PreshuffledOutput::Codes) {
            self.cols / 2
        } else {
            self.cols
        };
        Grid {
            step: TILE_ROWS,
            ..Grid::new(self.rows, row)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let wide = Self::wide(&self.output);
        let mut spans = PartRanges::new();
        for (matrix, rows) in split_by_matrix(rows, self.matrix_rows) {
            let (row, count) = (wide / 2, rows.end - rows.start);
            let start = matrix * self.matrix_rows * self.cols / 2 + rows.start * row;
            let (len, stride) = (count * row, self.matrix_rows * row);
            spans.push(self.place.of(PartRange::strided(
                0,
                start..start + len,
                self.cols / wide,
                stride,
            )));
            if let PreshuffledOutput::Products { products, group } = self.output {
                let groups = self.cols / group;
                // eight products per row and group
                let start = (matrix * groups * self.matrix_rows + rows.start) * 8;
                let (len, stride) = (count * 8, self.matrix_rows * 8);
                spans.push(products.of(PartRange::strided(0, start..start + len, groups, stride)));
            }
        }
        spans
    }

    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let wide = Self::wide(&self.output) as usize;
        let (high, row) = (TILE_ROWS as usize, self.grid().cols as usize);
        let per_piece = if matches!(self.output, PreshuffledOutput::Codes) {
            1
        } else {
            2
        };
        let mut out = out;
        for ((_, rows), strips) in
            split_by_matrix(rows, self.matrix_rows).zip(inputs.chunks_exact(per_piece))
        {
            let (now, behind) = out.split_at_mut((rows.end - rows.start) as usize * row);
            for (i, out) in now.chunks_exact_mut(row).enumerate() {
                for (t, out) in out
                    .chunks_exact_mut(row * wide / self.cols as usize)
                    .enumerate()
                {
                    // a run holds the tiles of one column of tiles, one after the other
                    let tile = &strips[0].run(t)[i / high * high * wide / 2..];
                    let code = |c: usize| {
                        let at = self.at(i % high, c);
                        tile[at / 2] >> (at % 2 * 4) & 15
                    };
                    match self.output {
                        PreshuffledOutput::Codes => {
                            out.iter_mut()
                                .enumerate()
                                .for_each(|(c, out)| *out = code(2 * c) | code(2 * c + 1) << 4);
                        }
                        PreshuffledOutput::Products { group, .. } => {
                            for (c, out) in out.iter_mut().enumerate() {
                                let products = strips[1].run((t * wide + c) / group as usize);
                                *out = product(
                                    code(c),
                                    products[i * 8..][..8].as_array().expect("eight bytes"),
                                );
                            }
                        }
                    }
                }
            }
            out = behind;
        }
        Ok(())
    }
}

/// The E4M3 product that a code stands for.
fn product(code: u8, products: &[u8; 8]) -> u8 {
    match code {
        0 => 0,
        // stored products are negative: without the sign bit, the value is the product with the sign of E4M3 flipped
        1..8 => products[usize::from(code)] ^ 0x80,
        _ => products[usize::from(code & 7)],
    }
}
