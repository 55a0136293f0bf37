//! Blocks of a GGUF, copied as they are stored; big-endian ones become little endian.

use std::ops::Range;

use anamnesis_kernel::BlockFormat;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartRange, PartRanges};

/// A tensor of blocks (part 0), as bytes. A row of the grid is one block.
#[derive(Debug)]
pub(crate) struct StoredBlocks {
    pub(crate) format: &'static BlockFormat,
    /// Number of blocks.
    pub(crate) count: u64,
    /// Whether multi-byte values are stored big endian.
    pub(crate) big: bool,
}

impl Decoder for StoredBlocks {
    fn grid(&self) -> Grid {
        Grid::new(self.count, self.format.block_bytes.into())
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let block = u64::from(self.format.block_bytes);
        PartRanges::from_iter([PartRange::run(0, rows.start * block..rows.end * block)])
    }

    fn copied(&self, dtype: Dtype) -> Option<PartRange> {
        let nbytes = self.count.checked_mul(self.format.block_bytes.into())?;
        (!self.big && dtype == Dtype::U8).then(|| PartRange::run(0, 0..nbytes))
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let bytes = parts.inputs[0].bytes;
        if bytes.len() != out.len() {
            return Err(Error::invalid_argument(format!(
                "{} bytes do not fit in {}",
                bytes.len(),
                out.len()
            )));
        }
        out.copy_from_slice(bytes);
        if self.big {
            self.format.swap_bytes(out);
        }
        Ok(())
    }
}
