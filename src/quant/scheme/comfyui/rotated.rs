//! Rows that were rotated in groups before they were quantised (ComfyUI's `convrot`).
//!
//! The matrix of a group of `g = 4^n` columns is the n-th Kronecker power of `[1 1 1 -1; 1 1 -1 1; 1 -1 1 1; -1 1 1 1]`,
//! divided by `sqrt(g)`. It is symmetric and its own inverse, so rotating again undoes it. The factors of the power are applied
//! one after the other, each to groups of four values, which costs `g * n` sums instead of `g * g`.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{Grouped, through_f32};
use crate::plan::{CodeNumbers, DecodeInput, Decoder, Grid, PartRanges};

/// As the inner decoder, with the rotation of each group of columns undone, in F32 with one rounding at the end.
#[derive(Debug)]
pub(super) struct Rotated {
    pub(super) inner: Grouped,
    /// Columns of a group: a power of 4 that divides the columns.
    pub(super) group: u64,
}

impl Decoder for Rotated {
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
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        through_f32(&self.inner, parts, out, |values| {
            let group = self.group as usize;
            let mut one = vec![0.0f32; group];
            for cells in values.chunks_exact_mut(group) {
                for (value, cell) in one.iter_mut().zip(&*cells) {
                    *value = f32::from_le_bytes(*cell);
                }
                rotate(&mut one);
                for (value, cell) in one.iter().zip(cells) {
                    *cell = value.to_le_bytes();
                }
            }
            Ok(())
        })
    }
}

/// Multiplies a group by the matrix.
fn rotate(values: &mut [f32]) {
    let mut step = 1;
    while step < values.len() {
        for block in values.chunks_exact_mut(step * 4) {
            for i in 0..step {
                let [a, b, c, d] = [0, 1, 2, 3].map(|k| block[i + k * step]);
                // a quarter of the square root of the size per factor: halving is exact
                block[i] = (a + b + c - d) * 0.5;
                block[i + step] = (a + b - c + d) * 0.5;
                block[i + 2 * step] = (a - b + c + d) * 0.5;
                block[i + 3 * step] = (b + c + d - a) * 0.5;
            }
        }
        step *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::rotate;

    #[test]
    fn rotating_equals_the_matrix_and_is_its_own_inverse() {
        const H: [[f64; 4]; 4] = [
            [1.0, 1.0, 1.0, -1.0],
            [1.0, 1.0, -1.0, 1.0],
            [1.0, -1.0, 1.0, 1.0],
            [-1.0, 1.0, 1.0, 1.0],
        ];
        for size in [4usize, 16, 64] {
            let values: Vec<f32> = (0..size).map(|i| (i * 37 % 19) as f32 - 9.0).collect();
            let mut rotated = values.clone();
            rotate(&mut rotated);
            for (row, got) in rotated.iter().enumerate() {
                let entry = |mut row: usize, mut col: usize| {
                    let mut product = 1.0;
                    for _ in 0..size.trailing_zeros() / 2 {
                        product *= H[row % 4][col % 4];
                        (row, col) = (row / 4, col / 4);
                    }
                    product
                };
                let sum: f64 = (0..size)
                    .map(|col| entry(row, col) * f64::from(values[col]))
                    .sum();
                let expected = sum / (size as f64).sqrt();
                assert!((f64::from(*got) - expected).abs() < 1e-4, "{size} {row}");
            }
            rotate(&mut rotated);
            assert_eq!(rotated, values);
        }
    }
}
