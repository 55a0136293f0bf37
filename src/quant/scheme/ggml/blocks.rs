//! ggml's blocks, dequantised by the kernel of their block type.
//!
//! Blocks are contiguous and independent, so a row of the grid is one block and a tile is one contiguous run. Blocks of
//! big-endian files are byte-swapped first. Some weights have a factor in a tensor of their own; their blocks are computed
//! in F32 and multiplied one by one.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::borrow::Cow;
use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel;
use crate::base::kernel::Dtype;
use crate::plan::decode::{cast, streaming};
use crate::plan::{DecodeInput, Decoder, Grid, PartRange, PartRanges};
use anamnesis_kernel::BlockFormat;

/// A tensor of blocks (part 0), and maybe factors (part 1, F32): the blocks are divided into equal shares with one factor
/// each.
#[derive(Debug)]
pub(crate) struct GgmlBlocks {
    pub(crate) format: &'static BlockFormat,
    /// Number of blocks.
    pub(crate) count: u64,
    /// Whether multi-byte values are stored big endian.
    pub(crate) big: bool,
    /// Number of factors; 0 if there are none.
    pub(crate) factors: u64,
}

impl Decoder for GgmlBlocks {
    fn grid(&self) -> Grid {
        Grid::new(self.count, self.format.block_len.into())
    }

    fn shared(&self) -> PartRanges {
        (self.factors > 0)
            .then(|| PartRange::run(1, 0..self.factors * 4))
            .into_iter()
            .collect()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let block = u64::from(self.format.block_bytes);
        PartRanges::from_iter([PartRange::run(0, rows.start * block..rows.end * block)])
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        self.make(
            &parts,
            &self.little(parts.inputs[0].bytes),
            parts.rows.start,
            out,
        )
    }

    fn decode_streaming(
        &self,
        parts: DecodeInput<'_>,
        room: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let blocks = self.little(parts.inputs[0].bytes);
        let (block, step) = (
            self.format.block_bytes as usize,
            self.block_output_bytes(parts.dtype),
        );
        streaming::decode_in_chunks(step, room, out, |first, made| {
            let blocks = &blocks[first * block..][..made.len() / step * block];
            self.make(&parts, blocks, parts.rows.start + first as u64, made)
        })
    }
}

impl GgmlBlocks {
    /// The blocks in little-endian byte order, which the kernels read.
    fn little<'b>(&self, blocks: &'b [u8]) -> Cow<'b, [u8]> {
        let mut blocks = Cow::Borrowed(blocks);
        if self.big {
            // a copy of the tile: a big-endian file is rare, and its bytes may be borrowed from a map
            self.format.swap_bytes(blocks.to_mut());
        }
        blocks
    }

    /// Output bytes of a block.
    fn block_output_bytes(&self, dtype: Dtype) -> usize {
        self.format.block_len as usize * (dtype.bits() as usize / 8)
    }

    /// Computes these blocks; `first` is the number of the first one.
    fn make(
        &self,
        parts: &DecodeInput<'_>,
        blocks: &[u8],
        first: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let Some(factors) = parts.shared.first() else {
            return Ok(kernel::dequantize(self.format, blocks, parts.dtype, out)?);
        };
        // experts are equally large, so that the number of the block gives the expert
        let share = self.count / self.factors;
        // the factor is applied in F32, before the only rounding
        let mut values = vec![0; self.block_output_bytes(Dtype::F32)];
        let blocks = blocks.chunks(self.format.block_bytes as usize);
        for ((block, out), row) in blocks
            .zip(out.chunks_mut(self.block_output_bytes(parts.dtype)))
            .zip(first..)
        {
            kernel::dequantize(self.format, block, Dtype::F32, &mut values)?;
            let factor = cast::f32_at(factors.bytes, (row / share) as usize);
            for cell in values.as_chunks_mut::<4>().0 {
                *cell = (f32::from_le_bytes(*cell) * factor).to_le_bytes();
            }
            cast::cast(Dtype::F32, &values, parts.dtype, out)?;
        }
        Ok(())
    }
}
