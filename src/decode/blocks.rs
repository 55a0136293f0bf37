//! ggml blocks, with the scale that some weights keep in a tensor of its own.

use std::borrow::Cow;
use std::ops::Range;

use crate::Dtype;
use crate::error::Result;
use crate::kernel;
use crate::plan::{Decoder, Grid, Parts, Span, Spans};
use anamnesis_kernel::BlockFormat;

use super::cast;

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
        (self.factors > 0).then(|| Span::run(1, 0..self.factors * 4)).into_iter().collect()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let block = u64::from(self.format.block_bytes);
        Spans::from_iter([Span::run(0, rows.start * block..rows.end * block)])
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        let Parts { shared, inputs, rows, dtype } = parts;
        let mut blocks = Cow::Borrowed(inputs[0].bytes);
        if self.big {
            self.format.turn_around(blocks.to_mut());
        }
        let Some(factors) = shared.first() else {
            return Ok(kernel::dequantize(self.format, &blocks, dtype, out)?);
        };
        let share = self.count / self.factors;
        let (block_bytes, item) = (self.format.block_bytes as usize, dtype.bits() as usize / 8);
        let mut values = vec![0; self.format.block_len as usize * 4];
        for ((block, out), row) in blocks.chunks(block_bytes).zip(out.chunks_mut(values.len() / 4 * item)).zip(rows) {
            kernel::dequantize(self.format, block, Dtype::F32, &mut values)?;
            let factor = cast::f32_at(factors.bytes, (row / share) as usize);
            for cell in values.as_chunks_mut::<4>().0 {
                *cell = (f32::from_le_bytes(*cell) * factor).to_le_bytes();
            }
            cast::cast(Dtype::F32, &values, dtype, out)?;
        }
        Ok(())
    }
}
