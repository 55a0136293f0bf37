//! Factors: scales and zero points that are stored in tensors of their own, one per group of elements.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::kernel::{self, e8m0};
use crate::plan::PartRange;

/// A tensor of factors: one for each block of `rows` x `cols` elements of a weight.
///
/// The weight is a stack of matrices of `matrix_rows` rows each. Every matrix has its own rows of factors:
/// `ceil(matrix_rows / rows)` rows of `ceil(cols_of_weight / cols)` factors. Blocks at the lower and right edges may be
/// smaller.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    /// Index of the part that holds them.
    pub(crate) part: usize,
    /// Their stored dtype: F32, F16, BF16, F64, an FP8, F8_E8M0, or an integer.
    pub(crate) dtype: Dtype,
    /// Rows that share a factor.
    pub(crate) rows: u64,
    /// Columns that share a factor.
    pub(crate) cols: u64,
}

impl Factors {
    /// A single factor for the whole weight.
    pub(crate) fn one(part: usize, dtype: Dtype) -> Self {
        Self {
            part,
            dtype,
            rows: u64::MAX,
            cols: u64::MAX,
        }
    }

    /// Whether there is a single factor for the whole weight.
    pub(crate) fn is_one(&self) -> bool {
        self.rows == u64::MAX
    }

    /// One factor for each `cols` elements of a row.
    pub(crate) fn per_group(part: usize, dtype: Dtype, cols: u64) -> Self {
        Self {
            part,
            dtype,
            rows: 1,
            cols,
        }
    }

    /// One factor for each block of `rows` x `cols` elements.
    pub(crate) fn per_block(part: usize, dtype: Dtype, rows: u64, cols: u64) -> Self {
        Self {
            part,
            dtype,
            rows,
            cols,
        }
    }

    /// The rows of the factor matrix that these rows of the weight need. `rows` is not empty.
    pub(crate) fn factor_rows(&self, rows: &Range<u64>, matrix_rows: u64) -> Range<u64> {
        // rounded up: the last block of a matrix may be partial, and the next matrix begins with a block of its own
        let per_matrix = matrix_rows.div_ceil(self.rows);
        let row = |r: u64| r / matrix_rows * per_matrix + r % matrix_rows / self.rows;
        // a factor that the whole stack shares, or one per column of all rows: a single row of factors
        if self.rows == u64::MAX {
            0..1
        } else {
            row(rows.start)..row(rows.end - 1) + 1
        }
    }

    /// The range of bytes that holds the factors of these rows.
    pub(crate) fn span(&self, rows: &Range<u64>, cols: u64, matrix_rows: u64) -> PartRange {
        // the last group of a row may be partial
        let per_row = cols.div_ceil(self.cols) * self.dtype.bits() / 8;
        let rows = self.factor_rows(rows, matrix_rows);
        PartRange::run(self.part, rows.start * per_row..rows.end * per_row)
    }
}

/// Stored factors, converted to F32.
pub(crate) fn to_f32(dtype: Dtype, bytes: &[u8]) -> Result<Vec<f32>> {
    let mut factors = Vec::new();
    append(&mut factors, dtype, bytes)?;
    Ok(factors)
}

/// Appends stored factors, converted to F32.
pub(crate) fn append(factors: &mut Vec<f32>, dtype: Dtype, bytes: &[u8]) -> Result<()> {
    use crate::base::kernel::{from_bf16, from_f16};
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    // the formulas are computed in F32
    match dtype {
        Dtype::F32 => factors.extend(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b))),
        Dtype::F16 => factors.extend(bytes.as_chunks().0.iter().map(|b| from_f16(*b))),
        Dtype::BF16 => factors.extend(bytes.as_chunks().0.iter().map(|b| from_bf16(*b))),
        Dtype::F64 => factors.extend(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f64::from_le_bytes(*b) as f32),
        ),
        Dtype::F8_E8M0 => factors.extend(bytes.iter().map(|b| e8m0(*b))),
        Dtype::I8 => factors.extend(bytes.iter().map(|b| f32::from(b.cast_signed()))),
        Dtype::U8 => factors.extend(bytes.iter().map(|b| f32::from(*b))),
        Dtype::I32 => factors.extend(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| i32::from_le_bytes(*b) as f32),
        ),
        Dtype::I64 => factors.extend(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| i64::from_le_bytes(*b) as f32),
        ),
        other => match kernel::CodeValue::of(other) {
            Some(value) => factors.extend(kernel::code_values(&value, bytes)),
            None => {
                return Err(Error::unsupported(format!(
                    "{other} is not a dtype of scales or zero points"
                )));
            }
        },
    }
    Ok(())
}

/// 2^(e - 128): half of the E8M0 scale `e`, for every `e`. 2^-128 is subnormal in F32, so byte 0 is written as its bits;
/// E8M0's own reading of 255 (NaN) cannot occur, because the argument of `e8m0` is one less.
pub(crate) fn half_exponent(e: u8) -> f32 {
    if e == 0 {
        f32::from_bits(0x0020_0000)
    } else {
        e8m0(e - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_exponent_is_exact_for_every_byte() {
        for e in 0..=255u8 {
            // by its bits: `powi` may differ in the last one, and does under Miri
            let power = f64::from_bits((1023 - 128 + u64::from(e)) << 52);
            assert!(f64::from(half_exponent(e)) == power, "{e}");
        }
    }
}
