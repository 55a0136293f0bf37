//! Elements of one job, decoded on request: for callers that make ranges of several jobs in step.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::limits::over;
use crate::base::progress::RunProgress;
use crate::plan::decode::{decode_elements, rows_with};
use crate::plan::{Job, JobWork, Tile, addressable};
use crate::read::checkpoint::Checkpoint;

use super::inputs::{JobInputs, Prefetched};

/// A worker's memory for the inputs of one job, reused for each range.
#[derive(Default)]
pub(crate) struct RowBuffers(Vec<Vec<u8>>);

/// A job whose output is made in tiles, with what its tiles share. Parts that are not addressable are in memory.
pub(crate) struct JobRows<'c> {
    checkpoint: &'c Checkpoint,
    job: &'c Job,
    inputs: JobInputs<'c>,
}

impl<'c> JobRows<'c> {
    /// Reads what the tiles of a job share. The job must be one of [`JobWork::Tiles`].
    pub(crate) fn new(
        checkpoint: &'c Checkpoint,
        job: &'c Job,
        progress: &RunProgress<'_>,
    ) -> Result<Self> {
        Ok(Self {
            checkpoint,
            job,
            inputs: JobInputs::new(checkpoint, job, 0, None, progress)?,
        })
    }

    /// Elements that are decoded at a time at least; ranges that begin at a multiple of them decode no element twice. `None` if
    /// the job is no [`JobWork::Tiles`].
    pub(crate) fn unit(job: &Job) -> Option<u64> {
        let JobWork::Tiles { decoder, .. } = &job.work else {
            return None;
        };
        let grid = decoder.grid();
        let step = grid.step.max(1);
        let rows = grid.least.max(1).min(grid.rows.max(1));
        let rows = rows.checked_next_multiple_of(step).unwrap_or(rows);
        Some(rows.saturating_mul(grid.cols).max(1))
    }

    /// Refuses ranges of this many elements where they, what they are made of and what all of them share exceed
    /// [`Limits::tile_bytes`](crate::Limits::tile_bytes).
    pub(crate) fn check_range(checkpoint: &Checkpoint, job: &Job, elements: u64) -> Result<()> {
        let JobWork::Tiles { decoder, .. } = &job.work else {
            return Ok(());
        };
        let (grid, allowed) = (decoder.grid(), checkpoint.limits().tile_bytes);
        let total = grid.rows.saturating_mul(grid.cols);
        let rows = rows_with(grid, &(0..elements.min(total)));
        if rows.is_empty() {
            return Ok(());
        }
        let made = rows.end.saturating_mul(grid.cols);
        // the rows and a copy of the elements that are wanted of them
        let output = 2 * (made.saturating_mul(job.output.dtype.bits()) / 8);
        let ranges = decoder.inputs(rows).into_iter().chain(decoder.shared());
        let ranges = ranges.map(|range| range.bytes.nbytes());
        let whole = job.parts.iter().filter_map(|part| {
            let info = &checkpoint.catalog().tensors()[part.tensor];
            (!addressable(info)).then(|| info.nbytes())
        });
        let needed = ranges.chain(whole).fold(output, u64::saturating_add);
        if needed <= allowed {
            return Ok(());
        }
        let what = format!(
            "a tile of weight {}",
            crate::read::catalog::quote(&job.output.name)
        );
        Err(over(needed, allowed, what, "tile_bytes"))
    }

    /// Decodes these elements, in C order, into `out`, which has their length in the dtype of the output.
    pub(crate) fn decode(
        &self,
        elements: &Range<u64>,
        buffers: &mut RowBuffers,
        out: &mut [u8],
    ) -> Result<()> {
        let JobWork::Tiles { decoder, .. } = &self.job.work else {
            return Err(Error::invalid_argument("a stream has no rows"));
        };
        let rows = rows_with(decoder.grid(), elements);
        let tile = Tile {
            inputs: decoder.inputs(rows.clone()),
            rows,
        };
        let prefetched = Prefetched::new();
        let inputs = self
            .inputs
            .tile(self.checkpoint, &tile, &prefetched, &mut buffers.0)?;
        let shared = self.inputs.shared();
        let dtype = self.job.output.dtype;
        decode_elements(&**decoder, elements, &shared, &inputs, dtype, out).map_err(|e| {
            e.context(&format!(
                "weight {}",
                crate::read::catalog::quote(&self.job.output.name)
            ))
        })
    }
}
