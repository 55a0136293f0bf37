//! The bytes of weights that each worker holds, without the byte ranges that it reads.

use anamnesis_template::parallel::Rule;

use crate::base::error::Result;
use crate::models::parallel::HeadCounts;
use crate::read::catalog::TensorInfo;

use super::Predict;
use super::share::{Degrees, WorkerCoordinates, share};
use super::stack::{ModelPosition, Stages, position};

/// A worker, and the bytes of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerHolding {
    pub(crate) rank: u32,
    pub(crate) tp: u32,
    pub(crate) pp: u32,
    pub(crate) nbytes: u64,
}

impl WorkerHolding {
    fn of(worker: WorkerCoordinates, nbytes: u64) -> Self {
        Self {
            rank: worker.rank,
            tp: worker.tp,
            pp: worker.pp,
            nbytes,
        }
    }

    /// The workers of a model without weights, by rank.
    pub(crate) fn nothing(tp: u32, pp: u32) -> Result<Vec<Self>> {
        let degrees = Degrees {
            tp,
            pp,
            dp: 1,
            ep: 1,
        };
        let workers = degrees.workers()?;
        Ok(workers.map(|worker| Self::of(worker, 0)).collect())
    }
}

impl Predict<'_> {
    /// The parts of these tensors that each worker holds, by rank. They need not be stored ones: tensors of another dtype
    /// count as if they were.
    pub(crate) fn held(
        &self,
        tensors: &[&TensorInfo],
        config: &HeadCounts,
    ) -> Result<Vec<WorkerHolding>> {
        let catalog = self.checkpoint.catalog();
        let workers: Vec<WorkerCoordinates> = self.degrees.workers()?.collect();
        let sizes = self.sizes(config);
        let placed: Vec<(&TensorInfo, Rule, ModelPosition<'_>)> = tensors
            .iter()
            .map(|info| {
                let (rule, position) = position(&self.rules, info);
                (*info, rule, position)
            })
            .collect();
        let positions: Vec<_> = placed
            .iter()
            .map(|(info, _, position)| (*info, *position))
            .collect();
        let stages = Stages::new(self.degrees.pp, config.layers, &positions);
        let mut held = Vec::new();
        for worker in workers {
            let mut nbytes = 0u64;
            for (info, rule, position) in &placed {
                if !stages.has(worker.pp, position, *rule) {
                    continue;
                }
                let runs = share(
                    catalog,
                    &self.rules,
                    info,
                    *rule,
                    worker,
                    self.degrees,
                    sizes,
                )?;
                let own = match runs {
                    Some(runs) => runs
                        .iter()
                        .map(anamnesis_template::StridedRange::nbytes)
                        .fold(0, u64::saturating_add),
                    // read whole, and held whole
                    None => info.nbytes(),
                };
                nbytes = nbytes.saturating_add(own);
            }
            held.push(WorkerHolding::of(worker, nbytes));
        }
        Ok(held)
    }
}
