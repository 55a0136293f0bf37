//! Elements of another decoder, wherever they begin.
//!
//! The rows of a decoder's grid need not be the rows of its tensor (a row of ggml's is a block), so a decoder that wraps
//! others addresses ranges of elements, and the rows of the grid that contain them are decoded.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartBytes};

use super::tile_rows::scratch;

/// The rows of a grid that contain these elements, in whole steps.
pub(crate) fn rows_with(grid: Grid, elements: &Range<u64>) -> Range<u64> {
    let (cols, step) = (grid.cols.max(1), grid.step.max(1));
    let end = elements.end.div_ceil(cols);
    elements.start / cols / step * step
        ..end
            .checked_next_multiple_of(step)
            .unwrap_or(grid.rows)
            .min(grid.rows)
}

/// Decodes these elements of a decoder into `out`, from the inputs of the rows that contain them.
pub(crate) fn decode_elements(
    decoder: &dyn Decoder,
    elements: &Range<u64>,
    shared: &[PartBytes<'_>],
    inputs: &[PartBytes<'_>],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<()> {
    let grid = decoder.grid();
    let rows = rows_with(grid, elements);
    let input = DecodeInput {
        shared,
        inputs,
        rows: rows.clone(),
        dtype,
    };
    // in place where the rows are exactly the elements
    if rows.start * grid.cols == elements.start && rows.end * grid.cols == elements.end {
        return decoder.decode(input, out);
    }
    let item = dtype.width();
    let mut made = scratch((rows.end - rows.start) as usize, grid.cols as usize * item)?;
    decoder.decode(input, &mut made)?;
    let skipped = (elements.start - rows.start * grid.cols) as usize * item;
    out.copy_from_slice(&made[skipped..][..out.len()]);
    Ok(())
}
