//! Scratch memory for the rows of a tile, and the matrices of a stack that these rows belong to.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::limits::zeroed;

/// Zeroed memory for `rows` rows of `row_bytes` bytes each.
///
/// # Errors
/// If the size overflows or the allocation fails.
pub(crate) fn scratch(rows: usize, row_bytes: usize) -> Result<Vec<u8>> {
    let full = || Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
    let nbytes = rows.checked_mul(row_bytes).ok_or_else(full)?;
    zeroed(nbytes).ok_or_else(full)
}

/// Splits a range of rows of a stack of matrices at the matrices' ends: the number of each matrix, and the range within it.
pub(crate) fn split_by_matrix(
    rows: Range<u64>,
    matrix_rows: u64,
) -> impl Iterator<Item = (u64, Range<u64>)> {
    (rows.start / matrix_rows..rows.end.div_ceil(matrix_rows)).map(move |m| {
        let base = m * matrix_rows;
        (
            m,
            rows.start.max(base) - base..(rows.end - base).min(matrix_rows),
        )
    })
}
