//! The transpose of a weight of any scheme.
//!
//! A tile of the transpose needs every row of the weight, and most schemes store codes that several columns share. So the
//! weight is one tile: it is decoded whole, then transposed. The models that need this have weights of at most 40 MB in
//! F32 (GPT-2 XL); `Limits::tile_bytes` bounds what other files may cost.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

use super::tile_rows::scratch;

/// Elements of the side of a square that is transposed at a time: both its sides stay in the first-level cache.
const SQUARE: usize = 32;

/// The transpose of a matrix of `rows` x `cols` elements that `inner` decodes.
#[derive(Debug)]
pub(crate) struct WholeTransposed {
    pub(crate) inner: Arc<dyn Decoder>,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

impl Decoder for WholeTransposed {
    fn grid(&self) -> Grid {
        Grid {
            rows: self.cols,
            cols: self.rows,
            // one tile
            step: self.cols.max(1),
            least: self.cols,
        }
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, _: Range<u64>) -> PartRanges {
        self.inner.inputs(0..self.inner.grid().rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let too_large = || Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        let size = |n: u64| usize::try_from(n).map_err(|_| too_large());
        let (rows, cols) = (size(self.rows)?, size(self.cols)?);
        // outputs are BF16, F16 or F32
        let width = size(parts.dtype.bits() / 8)?;
        let mut decoded = scratch(rows, cols.checked_mul(width).ok_or_else(too_large)?)?;
        let whole = DecodeInput {
            rows: 0..self.inner.grid().rows,
            ..parts
        };
        self.inner.decode(whole, &mut decoded)?;
        match width {
            2 => transpose::<2>(&decoded, rows, cols, out),
            _ => transpose::<4>(&decoded, rows, cols, out),
        }
        Ok(())
    }
}

fn transpose<const WIDTH: usize>(from: &[u8], rows: usize, cols: usize, to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<WIDTH>().0, to.as_chunks_mut::<WIDTH>().0);
    for first_row in (0..rows).step_by(SQUARE) {
        for first_col in (0..cols).step_by(SQUARE) {
            for col in first_col..cols.min(first_col + SQUARE) {
                for row in first_row..rows.min(first_row + SQUARE) {
                    to[col * rows + row] = from[row * cols + col];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_transposed() {
        for (rows, cols) in [(0, 3), (1, 1), (3, 5), (32, 32), (33, 70), (100, 31)] {
            let from: Vec<u8> = (0..rows * cols)
                .flat_map(|n| u16::try_from(n).unwrap().to_le_bytes())
                .collect();
            let mut to = vec![0; from.len()];
            transpose::<2>(&from, rows, cols, &mut to);
            for row in 0..rows {
                for col in 0..cols {
                    let (a, b) = (2 * (row * cols + col), 2 * (col * rows + row));
                    assert_eq!(from[a..a + 2], to[b..b + 2]);
                }
            }
        }
    }
}
