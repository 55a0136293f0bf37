//! Scales and zero points: one per group, in a tensor of their own.

use std::ops::Range;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel::{self, e8m0};
use crate::plan::Span;

/// A tensor of factors: one for each group of `rows` times `cols` elements of a weight.
///
/// The weight is a stack of matrices of `matrix_rows` rows (all of them, for a single matrix); each matrix
/// has its own rows of factors, the last of them cut short where the rows do not come out even.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    /// Number of the part.
    pub(crate) part: usize,
    /// How they are stored: F32, F16, BF16, F64, an FP8, F8_E8M0, or whole numbers.
    pub(crate) dtype: Dtype,
    /// Rows that share a factor.
    pub(crate) rows: u64,
    /// Columns that share a factor.
    pub(crate) cols: u64,
}

impl Factors {
    /// One for the whole weight.
    pub(crate) fn one(part: usize, dtype: Dtype) -> Self {
        Self {
            part,
            dtype,
            rows: u64::MAX,
            cols: u64::MAX,
        }
    }

    /// Whether there is one for the whole weight.
    pub(crate) fn is_one(&self) -> bool {
        self.rows == u64::MAX
    }

    /// One for each `cols` elements of a row.
    pub(crate) fn per_group(part: usize, dtype: Dtype, cols: u64) -> Self {
        Self {
            part,
            dtype,
            rows: 1,
            cols,
        }
    }

    /// One for each `rows` times `cols` elements.
    pub(crate) fn per_block(part: usize, dtype: Dtype, rows: u64, cols: u64) -> Self {
        Self {
            part,
            dtype,
            rows,
            cols,
        }
    }

    /// The rows of factors that these rows of a weight need.
    pub(super) fn factor_rows(&self, rows: &Range<u64>, matrix_rows: u64) -> Range<u64> {
        let per_matrix = matrix_rows.div_ceil(self.rows);
        let row = |r: u64| r / matrix_rows * per_matrix + r % matrix_rows / self.rows;
        // factors for a whole stack lie in one row
        if self.rows == u64::MAX {
            0..1
        } else {
            row(rows.start)..row(rows.end - 1) + 1
        }
    }

    /// The bytes of the factors for these rows.
    pub(super) fn span(&self, rows: &Range<u64>, cols: u64, matrix_rows: u64) -> Span {
        let per_row = cols.div_ceil(self.cols) * self.dtype.bits() / 8;
        let rows = self.factor_rows(rows, matrix_rows);
        Span::run(self.part, rows.start * per_row..rows.end * per_row)
    }
}

/// Stored factors as F32.
pub(super) fn to_f32(dtype: Dtype, bytes: &[u8]) -> Result<Vec<f32>> {
    let mut factors = Vec::new();
    append(&mut factors, dtype, bytes)?;
    Ok(factors)
}

/// Stored factors as F32, behind others.
pub(super) fn append(factors: &mut Vec<f32>, dtype: Dtype, bytes: &[u8]) -> Result<()> {
    use crate::kernel::{from_bf16, from_f16};
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    // F32 is what factors become
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
        other => match kernel::Value::of(other) {
            Some(value) => factors.extend(kernel::values(&value, bytes)),
            None => return Err(Error::unsupported(format!("scales stored as {other}"))),
        },
    }
    Ok(())
}
