//! Which slices of each tensor are loaded.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Result;
use crate::models::parallel::{TensorParallel, WorkerShares};
use crate::read::catalog::{Catalog, TensorInfo};
use crate::read::checkpoint::Checkpoint;
use crate::read::slice::TensorSlice;

type SliceOf<'c> = dyn Fn(&TensorInfo) -> TensorSlice + Send + Sync + 'c;
type SlicesOf<'c> = dyn Fn(&TensorInfo) -> Vec<TensorSlice> + Send + Sync + 'c;

/// The caller's choice.
#[derive(Clone)]
pub(super) enum SliceChoice<'c> {
    Whole,
    One(Arc<SliceOf<'c>>),
    Several(Arc<SlicesOf<'c>>),
    Parallel(Arc<TensorParallel>),
}

/// The choice for the tensors of one checkpoint.
pub(super) enum CheckpointSlices<'s, 'c> {
    Whole,
    One(&'s SliceOf<'c>),
    Several(&'s SlicesOf<'c>),
    Shares(WorkerShares<'s>),
}

impl<'c> SliceChoice<'c> {
    /// Reads what the shares of workers need of the checkpoint's configuration.
    pub(super) fn of(&self, checkpoint: &Checkpoint) -> Result<CheckpointSlices<'_, 'c>> {
        Ok(match self {
            Self::Whole => CheckpointSlices::Whole,
            Self::One(slice) => CheckpointSlices::One(&**slice),
            Self::Several(slices) => CheckpointSlices::Several(&**slices),
            Self::Parallel(parallel) => {
                CheckpointSlices::Shares(parallel.shares(checkpoint, &checkpoint.budget())?)
            }
        })
    }
}

impl CheckpointSlices<'_, '_> {
    /// The slices of a tensor, in order.
    pub(super) fn of(
        &self,
        catalog: &Catalog,
        info: &TensorInfo,
    ) -> Result<SmallVec<[TensorSlice; 1]>> {
        let one = match self {
            Self::Whole => TensorSlice::Whole,
            Self::One(slice) => slice(info),
            Self::Several(slices) => return Ok(slices(info).into()),
            Self::Shares(shares) => shares.stored(catalog, info)?,
        };
        Ok(SmallVec::from_buf([one]))
    }
}
