//! The bytes of a tensor that one worker reads: the split rules, applied to tensors in stored order.

use anamnesis_template::StridedRange;
use anamnesis_template::parallel::{Experts, Rule, Rules, Split};

use crate::base::error::{Error, Result};
use crate::models::parallel::{SMALL_VECTOR, item_shape, of_tensor, stored_runs};
use crate::plan::addressable;
use crate::read::catalog::{Catalog, TensorInfo};

/// The degrees of parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Degrees {
    /// Workers that share each matrix.
    pub(super) tp: u32,
    /// Pipeline stages, which share the layers.
    pub(super) pp: u32,
    /// Replicas, which share only experts.
    pub(super) dp: u32,
    /// The number of a stage's workers that whole experts are distributed over.
    pub(super) ep: u32,
}

/// The most workers that readers of templates accept.
const MAX_WORKERS: u32 = 65_536;

/// The coordinates of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerCoordinates {
    pub(super) rank: u32,
    pub(super) tp: u32,
    pub(super) pp: u32,
    dp: u32,
}

impl Degrees {
    /// All workers by rank, in vLLM's order: replicas of stages of tensor-parallel workers.
    pub(super) fn workers(self) -> Result<impl Iterator<Item = WorkerCoordinates>> {
        let Self { tp, pp, dp, ep } = self;
        let named = [("tp", tp), ("pp", pp), ("dp", dp), ("ep", ep)];
        if let Some((name, _)) = named.iter().find(|(_, degree)| *degree == 0) {
            return Err(Error::invalid_argument(format!(
                "{name} is 0, and must be at least 1"
            )));
        }
        let count = [pp, dp]
            .iter()
            .try_fold(tp, |count, degree| count.checked_mul(*degree));
        // the degrees multiply, and each worker is a group of the template
        let Some(count) = count.filter(|count| *count <= MAX_WORKERS) else {
            return Err(Error::invalid_argument(format!(
                "tp {tp}, pp {pp} and dp {dp} are more than {MAX_WORKERS} workers"
            )));
        };
        if !(tp * dp).is_multiple_of(ep) {
            return Err(Error::invalid_argument(format!(
                "ep {ep} does not divide the {} workers of a stage (tp × dp)",
                tp * dp
            )));
        }
        Ok((0..count).map(move |rank| WorkerCoordinates {
            rank,
            tp: rank % tp,
            pp: rank / tp % pp,
            dp: rank / tp / pp,
        }))
    }

    /// The name of a worker.
    pub(super) fn name(self, worker: WorkerCoordinates) -> String {
        let parts = [
            ("dp", worker.dp, self.dp),
            ("pp", worker.pp, self.pp),
            ("tp", worker.tp, self.tp),
        ];
        let parts = parts
            .iter()
            .filter(|(.., degree)| *degree > 1)
            .map(|(name, number, _)| format!("{name} {number}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// The sizes of the model that decide how it is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelSizes {
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) experts: u64,
}

/// The runs that a worker reads, relative to the tensor's first byte; `None` for a tensor that can only be read whole.
pub(super) fn share(
    catalog: &Catalog,
    rules: &Rules,
    info: &TensorInfo,
    rule: Rule,
    worker: WorkerCoordinates,
    degrees: Degrees,
    sizes: ModelSizes,
) -> Result<Option<Vec<StridedRange>>> {
    let Some((shape, item)) = items(info) else {
        return Ok(None);
    };
    // also a bias: a part of a page is not read alone
    let rule = if shape.len() < 2 && info.bytes.len <= SMALL_VECTOR {
        Rule::Replicated
    } else {
        rule
    };
    let Degrees { tp, dp, ep, .. } = degrees;
    let ModelSizes {
        heads,
        kv_heads,
        experts,
    } = sizes;
    if Experts::of(&info.name).is_none() {
        let split = Split {
            rank: worker.tp,
            world: tp,
            heads,
            kv_heads,
            experts: 0,
        };
        return stored_runs(catalog, info, rule, &shape, item, &split).map(Some);
    }
    // replicas share experts: whole experts are distributed over `ep` groups, and the workers of a group split each of them
    let (rank, group) = (worker.dp * tp + worker.tp, tp * dp / ep);
    let within = Split {
        // experts are distributed over all workers of a stage, replicas included (vLLM: expert parallel size is tp ×
        // dp)
        rank: rank % group,
        world: group,
        heads,
        kv_heads,
        experts: 0,
    };
    if ep == 1 {
        return stored_runs(catalog, info, rule, &shape, item, &within).map(Some);
    }
    let among = Split {
        rank: rank / group,
        world: ep,
        experts,
        ..Split::default()
    };
    let own = rules
        .slices(&info.name, &shape, item, &among)
        .map_err(|e| of_tensor(&info.name, e))?;
    let [whole] = own[..] else {
        return Ok(Some(own));
    };
    if group == 1 || whole.count != 1 {
        return Ok(Some(vec![whole]));
    }
    // a tensor of all experts: the group's experts, split like a tensor that has only those
    let mut part = shape.clone();
    if Experts::of(&info.name) == Some(Experts::All)
        && let Some((first, rest)) = part.split_first_mut()
    {
        *first = whole.len / rest.iter().product::<u64>().saturating_mul(item).max(1);
    }
    let runs = stored_runs(catalog, info, rule, &part, item, &within)?;
    Ok(Some(
        runs.into_iter()
            .filter_map(|runs| runs.shifted(whole.start))
            .collect(),
    ))
}

/// The shape in indivisible items, and the bytes of an item; `None` if the tensor cannot be read in part.
fn items(info: &TensorInfo) -> Option<(Vec<u64>, u64)> {
    if !addressable(info) {
        return None;
    }
    let (shape, (_, item)) = (item_shape(info)?, info.encoding.unit());
    let nbytes = shape
        .iter()
        .try_fold(item, |n, size| n.checked_mul(*size))?;
    // false for a shape that was derived wrongly: the tensor is then read whole, which is never too little
    (nbytes == info.bytes.len).then_some((shape, item))
}
