//! Slices of outputs: the jobs of a plan, reduced to the part that the caller has chosen.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::parallel::{TensorParallel, WorkerShares};
use crate::plan::decode::Sliced;
use crate::plan::{Job, JobWork, TensorSpec};
use crate::read::catalog::Encoding;
use crate::read::checkpoint::Checkpoint;
use crate::read::slice::TensorSlice;

type SliceOf<'c> = dyn Fn(&TensorSpec) -> TensorSlice + Send + Sync + 'c;

/// The caller's choice.
#[derive(Clone)]
pub(super) enum OutputSlices<'c> {
    Whole,
    One(Arc<SliceOf<'c>>),
    Parallel(Arc<TensorParallel>),
}

/// The choice for the outputs of one checkpoint.
pub(super) enum CheckpointOutputSlices<'s, 'c> {
    Whole,
    One(&'s SliceOf<'c>),
    Shares(WorkerShares<'s>),
}

impl<'c> OutputSlices<'c> {
    /// Reads what the shares of workers need of the checkpoint's configuration.
    pub(super) fn of(
        &self,
        checkpoint: &Checkpoint,
        budget: &Budget,
    ) -> Result<CheckpointOutputSlices<'_, 'c>> {
        Ok(match self {
            Self::Whole => CheckpointOutputSlices::Whole,
            Self::One(slice) => CheckpointOutputSlices::One(&**slice),
            Self::Parallel(parallel) => {
                CheckpointOutputSlices::Shares(parallel.shares(checkpoint, budget)?)
            }
        })
    }
}

impl CheckpointOutputSlices<'_, '_> {
    fn of(&self, spec: &TensorSpec) -> Result<TensorSlice> {
        match self {
            Self::Whole => Ok(TensorSlice::Whole),
            Self::One(slice) => Ok(slice(spec)),
            Self::Shares(shares) => shares.output(&spec.name, &spec.shape, spec.dtype),
        }
    }

    /// Reduces a job to its slice. Returns whether the job has changed.
    pub(super) fn apply(&self, job: &mut Job, budget: &Budget, what: &str) -> Result<bool> {
        let spec = &job.output;
        let slice = self.of(spec)?;
        if slice == TensorSlice::Whole {
            return Ok(false);
        }
        let encoding = Encoding::Plain(spec.dtype);
        let layout = slice.layout("weight", &spec.name, &spec.shape, &encoding)?;
        // a slice that has all of it needs no decoder around the job's
        if layout.shape == spec.shape {
            return Ok(false);
        }
        budget.memory(slice.memory() + size_of::<Sliced>() as u64, what)?;
        match &mut job.work {
            // the encoding of the stored elements, as the cast follows
            JobWork::Stream { from, slice: whole } => {
                let encoding = Encoding::Plain(*from);
                slice.layout("weight", &spec.name, &spec.shape, &encoding)?;
                *whole = slice;
            }
            JobWork::Tiles { decoder, rows } => {
                let sliced = Sliced {
                    inner: Arc::clone(decoder),
                    runs: layout.runs,
                };
                *rows = sliced.rows_per_tile(spec.dtype);
                *decoder = Arc::new(sliced);
            }
        }
        job.output.shape = layout.shape;
        Ok(true)
    }
}
