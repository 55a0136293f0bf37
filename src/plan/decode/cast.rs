//! Unquantised elements, copied or converted to another float.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::kernel;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartRange, PartRanges};

use super::streaming;

/// An unquantised tensor (part 0), element by element, in its own dtype or in another float.
///
/// A row of the grid is one element: elements are independent, so tiles may begin anywhere and are equally long.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) from: Dtype,
    /// Number of elements.
    pub(crate) elements: u64,
}

impl Decoder for Cast {
    fn grid(&self) -> Grid {
        // elements of 4 and 6 bits share bytes: four of either end at a byte
        Grid {
            step: 4,
            ..Grid::new(self.elements, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let at = |element| self.from.nbytes(element).unwrap_or_default();
        PartRanges::from_iter([PartRange::run(0, at(rows.start)..at(rows.end))])
    }

    fn copied(&self, dtype: Dtype) -> Option<PartRange> {
        let nbytes = self.from.nbytes(self.elements)?;
        (self.from == dtype).then(|| PartRange::run(0, 0..nbytes))
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput { inputs, dtype, .. } = parts;
        cast(self.from, inputs[0].bytes, dtype, out)
    }

    fn decode_streaming(
        &self,
        parts: DecodeInput<'_>,
        room: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let (from, bytes) = (self.from.bits() as usize, parts.inputs[0].bytes);
        if self.from == parts.dtype && bytes.len() == out.len() {
            // without a chunk in between: nothing is computed, so the copy can go straight from the file to memory
            kernel::copy_non_temporal(bytes, out);
            return Ok(());
        }
        let step = parts.dtype.bits() as usize / 8;
        streaming::decode_in_chunks(step, room, out, |first, made| {
            let bytes = &bytes[first * from / 8..][..made.len() / step * from / 8];
            cast(self.from, bytes, parts.dtype, made)
        })
    }
}

/// Whether elements of `from` can become elements of `to`: if the dtypes are equal, or if both are floats and `to` is F32,
/// F16 or BF16.
pub(crate) fn casts(from: Dtype, to: Dtype) -> bool {
    from == to
        || (kernel::can_cast_from(from) && matches!(to, Dtype::F32 | Dtype::F16 | Dtype::BF16))
}

/// Converts elements through F32, with one rounding to nearest even; equal dtypes are copied.
pub(crate) fn cast(from: Dtype, bytes: &[u8], to: Dtype, out: &mut [u8]) -> Result<()> {
    if from == to {
        if bytes.len() != out.len() {
            return Err(Error::invalid_argument(format!(
                "{} bytes do not fit in {}",
                bytes.len(),
                out.len()
            )));
        }
        out.copy_from_slice(bytes);
        return Ok(());
    }
    Ok(kernel::cast(from, bytes, to, out)?)
}

/// Value number `i` of little-endian F32 values.
pub(crate) fn f32_at(bytes: &[u8], i: usize) -> f32 {
    f32::from_le_bytes(bytes.as_chunks().0[i])
}
