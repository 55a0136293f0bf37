//! Plain elements, copied or cast.

use std::ops::Range;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel;
use crate::plan::{Decoder, Grid, Parts, Span, Spans};

use super::cells;

/// A plain tensor (part 0) in its own dtype or in another.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) from: Dtype,
    /// Number of elements.
    pub(crate) elements: u64,
}

impl Decoder for Cast {
    fn grid(&self) -> Grid {
        // tiles are multiples of 4 elements, so that those that share bytes stay together
        Grid {
            step: 4,
            ..Grid::new(self.elements, 1)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let at = |element| self.from.nbytes(element).unwrap_or_default();
        Spans::from_iter([Span::run(0, at(rows.start)..at(rows.end))])
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts { inputs, dtype, .. } = parts;
        cast(self.from, inputs[0].bytes, dtype, out)
    }

    fn decode_past(&self, parts: Parts<'_>, room: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let (from, bytes) = (self.from.bits() as usize, parts.inputs[0].bytes);
        if self.from == parts.dtype && bytes.len() == out.len() {
            kernel::stream(bytes, out);
            return Ok(());
        }
        let step = parts.dtype.bits() as usize / 8;
        cells::past(step, room, out, |first, made| {
            let bytes = &bytes[first * from / 8..][..made.len() / step * from / 8];
            cast(self.from, bytes, parts.dtype, made)
        })
    }
}

/// Whether elements of `from` become elements of `to`: all do that are the same, and floats of 16 bits and
/// more become one another.
pub(crate) fn casts(from: Dtype, to: Dtype) -> bool {
    from == to || (kernel::cast_from(from) && matches!(to, Dtype::F32 | Dtype::F16 | Dtype::BF16))
}

/// Casts elements, through F32 and with one rounding to nearest even.
pub(crate) fn cast(from: Dtype, bytes: &[u8], to: Dtype, out: &mut [u8]) -> Result<()> {
    if from == to {
        if bytes.len() != out.len() {
            return Err(Error::misuse(format!(
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

/// The F32 with this index in little-endian bytes.
pub(crate) fn f32_at(bytes: &[u8], i: usize) -> f32 {
    f32::from_le_bytes(bytes.as_chunks().0[i])
}
