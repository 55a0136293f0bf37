//! Elements that are computed from a configuration: of no stored tensor.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

use super::cast::cast;

/// The elements themselves. A row of the grid is one of them.
#[derive(Debug)]
pub(crate) struct ConstantElements(pub(crate) Vec<f32>);

impl Decoder for ConstantElements {
    fn grid(&self) -> Grid {
        Grid::new(self.0.len() as u64, 1)
    }

    fn inputs(&self, _: Range<u64>) -> PartRanges {
        PartRanges::new()
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let index = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
        let values = &self.0[index(parts.rows.start)..index(parts.rows.end)];
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        cast(Dtype::F32, &bytes, parts.dtype, out)
    }
}
