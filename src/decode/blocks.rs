//! ggml blocks, with the scale that some weights keep in a tensor of its own.

use std::borrow::Cow;
use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::kernel;
use crate::plan::{Decoder, Grid, Parts, Span, Spans};
use anamnesis_kernel::BlockFormat;

use super::{cast, cells};

/// A tensor of blocks (part 0), and maybe a factor per equal share of it (part 1, F32).
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) format: &'static BlockFormat,
    /// Number of blocks.
    pub(crate) count: u64,
    /// Whether numbers of more than a byte are stored big endian.
    pub(crate) big: bool,
    /// Factors of its equal shares; 0 if there are none.
    pub(crate) factors: u64,
}

impl Decoder for Blocks {
    fn grid(&self) -> Grid {
        Grid::new(self.count, self.format.block_len.into())
    }

    fn shared(&self) -> Spans {
        (self.factors > 0)
            .then(|| Span::run(1, 0..self.factors * 4))
            .into_iter()
            .collect()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let block = u64::from(self.format.block_bytes);
        Spans::from_iter([Span::run(0, rows.start * block..rows.end * block)])
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        self.make(
            &parts,
            &self.little(parts.inputs[0].bytes),
            parts.rows.start,
            out,
        )
    }

    fn decode_past(&self, parts: Parts<'_>, room: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let blocks = self.little(parts.inputs[0].bytes);
        let (block, step) = (
            self.format.block_bytes as usize,
            self.made_of_one(parts.dtype),
        );
        cells::past(step, room, out, |first, made| {
            let blocks = &blocks[first * block..][..made.len() / step * block];
            self.make(&parts, blocks, parts.rows.start + first as u64, made)
        })
    }
}

impl Blocks {
    /// Blocks in the order of bytes that kernels know.
    fn little<'b>(&self, blocks: &'b [u8]) -> Cow<'b, [u8]> {
        let mut blocks = Cow::Borrowed(blocks);
        if self.big {
            self.format.turn_around(blocks.to_mut());
        }
        blocks
    }

    /// Bytes that a block becomes.
    fn made_of_one(&self, dtype: Dtype) -> usize {
        self.format.block_len as usize * (dtype.bits() as usize / 8)
    }

    /// Makes these blocks, of which the first has this number.
    fn make(&self, parts: &Parts<'_>, blocks: &[u8], first: u64, out: &mut [u8]) -> Result<()> {
        let Some(factors) = parts.shared.first() else {
            return Ok(kernel::dequantize(self.format, blocks, parts.dtype, out)?);
        };
        let share = self.count / self.factors;
        let mut values = vec![0; self.made_of_one(Dtype::F32)];
        let blocks = blocks.chunks(self.format.block_bytes as usize);
        for ((block, out), row) in blocks
            .zip(out.chunks_mut(self.made_of_one(parts.dtype)))
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
