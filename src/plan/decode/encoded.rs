//! The output of another decoder, encoded: rows of F32 become blocks of ggml, or a plain float.
//!
//! A row is encoded on its own, since some types of blocks have numbers of their whole row.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::kernel::{self, BlockFormat, Dtype};
use crate::base::limits::zeroed_numbers;
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

use super::cast::cast;

/// Bytes of a tile's numbers in F32, which stay in the second-level cache with what is made of them.
const TILE_BYTES: u64 = 1 << 20;

/// Rows of `width` numbers of another decoder, in another type. A row of the grid is a row of the tensor.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) inner: Arc<dyn Decoder>,
    pub(crate) to: EncodedType,
    pub(crate) rows: u64,
    pub(crate) width: u64,
    /// How much each column matters: `width` numbers for each matrix of the stack.
    pub(crate) importance: Option<Arc<[f32]>>,
    /// Rows of each matrix.
    pub(crate) matrix_rows: u64,
}

/// The type that rows are encoded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodedType {
    /// BF16, F16 or F32.
    Plain(Dtype),
    Blocks(&'static BlockFormat),
}

impl EncodedType {
    /// Columns of the grid for a row of this many elements, of the dtype of the output; `None` if they fill no whole blocks.
    fn columns(self, width: u64) -> Option<u64> {
        match self {
            Self::Plain(_) => Some(width),
            Self::Blocks(format) => format.nbytes(width),
        }
    }
}

impl Encoded {
    /// Rows of a tile: their numbers in F32 take about a megabyte.
    pub(crate) fn rows_per_tile(&self) -> u64 {
        (TILE_BYTES / self.width.saturating_mul(4).max(1)).max(1)
    }

    /// Rows of the inner grid in these rows.
    fn inner_rows(&self, rows: &Range<u64>) -> Range<u64> {
        let per_row = self.width / self.inner.grid().cols.max(1);
        rows.start * per_row..rows.end * per_row
    }
}

impl Decoder for Encoded {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.to.columns(self.width).unwrap_or(0))
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.inner.inputs(self.inner_rows(&rows))
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            ..
        } = parts;
        let width = self.width as usize;
        let values = numbers(&*self.inner, shared, inputs, self.inner_rows(&rows))?;
        match self.to {
            EncodedType::Plain(dtype) => {
                let bytes = bytemuck::cast_slice(&values);
                cast(Dtype::F32, bytes, dtype, out)?;
                check_finite(dtype, out)
            }
            EncodedType::Blocks(format) => {
                let row_bytes = out.len() / (rows.end - rows.start).max(1) as usize;
                let (mut values, mut out) = (&*values, out);
                // one call for the rows of each matrix: they share the importance of its columns
                for (matrix, within) in super::split_by_matrix(rows, self.matrix_rows) {
                    let count = (within.end - within.start) as usize;
                    let own = values
                        .split_off(..count * width)
                        .expect("as long as the rows");
                    let made = out
                        .split_off_mut(..count * row_bytes)
                        .expect("as long as the rows");
                    let first = matrix as usize * width;
                    let importance = self.importance.as_ref();
                    let importance = importance.map(|all| &all[first..][..width]);
                    kernel::quantize(format, own, width, importance, made)?;
                }
                Ok(())
            }
        }
    }
}

/// The output of a decoder in F32, all of it finite.
fn numbers(
    inner: &dyn Decoder,
    shared: &[crate::plan::PartBytes<'_>],
    inputs: &[crate::plan::PartBytes<'_>],
    rows: Range<u64>,
) -> Result<Vec<f32>> {
    let full = || Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
    let count = (rows.end - rows.start).checked_mul(inner.grid().cols);
    let count = count.and_then(|count| usize::try_from(count).ok());
    let mut values: Vec<f32> = count.and_then(zeroed_numbers).ok_or_else(full)?;
    let parts = DecodeInput {
        shared,
        inputs,
        rows,
        dtype: Dtype::F32,
    };
    inner.decode(parts, bytemuck::cast_slice_mut(&mut values))?;
    for value in &mut values {
        // decoders write little endian
        *value = f32::from_bits(u32::from_le(value.to_bits()));
    }
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(Error::unsupported(
            "it has a value that is infinite or no number, or becomes infinite as it is rounded, which a quantised file cannot have",
        )),
    }
}

/// Refuses a number that a narrower type cannot have.
fn check_finite(dtype: Dtype, bytes: &[u8]) -> Result<()> {
    let is_finite = match dtype {
        Dtype::F16 => bytes
            .as_chunks()
            .0
            .iter()
            .all(|half: &[u8; 2]| half[1] & 0x7c != 0x7c),
        Dtype::BF16 => {
            let mut halves = bytes.as_chunks::<2>().0.iter();
            halves.all(|half| u16::from_le_bytes(*half) & 0x7f80 != 0x7f80)
        }
        _ => true,
    };
    match is_finite {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "it has a value that is too large for {dtype}"
        ))),
    }
}

/// A copy of stored elements, whose values are looked at: a quantised file has no infinite ones, and none that are no numbers.
#[derive(Debug)]
pub(crate) struct CheckedCopy {
    pub(crate) copy: Arc<dyn Decoder>,
    /// The same rows, as numbers.
    pub(crate) values: Arc<dyn Decoder>,
}

impl Decoder for CheckedCopy {
    fn grid(&self) -> Grid {
        self.copy.grid()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.copy.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        numbers(
            &*self.values,
            parts.shared,
            parts.inputs,
            parts.rows.clone(),
        )?;
        self.copy.decode(parts, out)
    }
}
