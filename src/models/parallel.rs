//! The shares of tensor-parallel workers: the rules by which tensors are split, applied to the tensors of a checkpoint.
//!
//! The rules and their arithmetic are in `anamnesis-template` and know only names and shapes. This adds what a stored tensor
//! is: blocks that are not divided, matrices that are stored as `[inputs, outputs]`, small vectors. `predict`, `load` and
//! `remember` all use it.

mod config;
mod packed;

use anamnesis_template::StridedRange;
use anamnesis_template::parallel::{self, AxisShare, Rule, Rules, Split};

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::read::catalog::{Catalog, Layout, TensorInfo, elements, quote};
use crate::read::checkpoint::Checkpoint;
use crate::read::slice::TensorSlice;

pub(crate) use config::HeadCounts;
pub(crate) use packed::inputs_first;

/// A vector of up to this many bytes is not split, unless it is a bias: shapes, single scales, tables of codes.
pub(crate) const SMALL_VECTOR: u64 = 4096;

/// Parts of the names of tensors whose outputs are heads, in addition to the ones whose rule says it.
const OF_HEADS: [&str; 8] = [
    ".q_proj.",
    ".q_b_proj.",
    ".kv_b_proj.",
    ".query_key_value.",
    ".wq.",
    ".attn_q.",
    ".attn_q_b.",
    ".attn_kv_b.",
];

/// One worker of a tensor-parallel group, and the rules by which the group splits tensors.
#[derive(Clone, Debug)]
pub(crate) struct TensorParallel {
    rank: u32,
    of: u32,
    rules: Rules,
}

/// The shares of one worker in the tensors of a checkpoint.
#[derive(Debug)]
pub(crate) struct WorkerShares<'p> {
    rules: &'p Rules,
    split: Split,
}

impl TensorParallel {
    pub(crate) fn new(rank: u32, of: u32, rules: &Rules) -> Self {
        Self {
            rank,
            of,
            rules: rules.clone(),
        }
    }

    /// With the numbers of heads that the checkpoint's configuration states.
    pub(crate) fn shares(
        &self,
        checkpoint: &Checkpoint,
        budget: &Budget,
    ) -> Result<WorkerShares<'_>> {
        let config = HeadCounts::of(checkpoint, budget)?;
        Ok(WorkerShares {
            rules: &self.rules,
            split: Split {
                rank: self.rank,
                world: self.of,
                heads: config.heads.unwrap_or(0),
                kv_heads: config.kv_heads.unwrap_or(0),
                experts: 0,
            },
        })
    }
}

impl WorkerShares<'_> {
    /// Refuses shares of whole tensors that would begin inside of a head, or have queries whose keys another worker has. The engines
    /// have the same rule. A note where the number of heads is not known.
    pub(crate) fn check_heads<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Option<String>> {
        let world = u64::from(self.split.world);
        let (heads, kv_heads) = (self.split.heads, self.split.kv_heads);
        for name in names.filter(|_| world > 1) {
            let rule = self.rules.rule(name);
            let is_kv = matches!(rule, Rule::KeyValue | Rule::FusedQkv);
            let is_of_heads =
                rule == Rule::Column && OF_HEADS.iter().any(|part| name.contains(part));
            if !is_kv && !is_of_heads {
                continue;
            }
            let cut = |count: u64, what: &str| {
                let what = format!(
                    "tensor {}: the {count} heads{what} of the model cannot be shared by {world} workers: a share would begin inside of a head, or have queries without their keys",
                    quote(name)
                );
                Err(Error::invalid_argument(what))
            };
            if heads == 0 {
                return Ok(Some(format!(
                    "the number of heads of the model is not known, so that the share of {} may begin inside of a head",
                    quote(name)
                )));
            }
            if !heads.is_multiple_of(world) {
                return cut(heads, "");
            }
            let is_shared =
                kv_heads == 0 || kv_heads.is_multiple_of(world) || world.is_multiple_of(kv_heads);
            if is_kv && !is_shared {
                return cut(kv_heads, " of keys and values");
            }
        }
        Ok(None)
    }

    /// Whether a rule divides a tensor of this name, if its shape allows it.
    pub(crate) fn divides(&self, name: &str) -> bool {
        self.rules.rule(name) != Rule::Replicated
    }

    /// Whether a tensor of this name has the rows of a vocabulary, of which the first workers have all where its padding is longer than
    /// the vocabulary: others then have none, and it is divided nevertheless.
    pub(crate) fn is_of_vocabulary(&self, name: &str) -> bool {
        self.rules.rule(name) == Rule::Vocab
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> u32 {
        self.split.world
    }

    /// The worker's slice of a stored tensor. A tensor whose rows end inside of a block is not split.
    pub(crate) fn stored(&self, catalog: &Catalog, info: &TensorInfo) -> Result<TensorSlice> {
        let Some(items) = item_shape(info) else {
            return Ok(TensorSlice::Whole);
        };
        let rule = self.rule(&info.name, &info.shape, info.nbytes());
        let share = stored_share(catalog, info, rule, &items, &self.split);
        let share = share.map_err(|e| of_tensor(&info.name, e))?;
        let (per_item, _) = info.encoding.unit();
        Ok(share.map_or(TensorSlice::Whole, |mut share| {
            // an item of the last axis holds several elements
            if share.axis + 1 == items.len() {
                for range in &mut share.ranges {
                    *range = range.start * per_item..range.end * per_item;
                }
            }
            slice_of(share)
        }))
    }

    /// The worker's slice of a dequantised weight, or of a tensor that is copied. Ranges may begin inside of blocks.
    pub(crate) fn output(&self, name: &str, shape: &[u64], dtype: Dtype) -> Result<TensorSlice> {
        let nbytes = elements(shape).and_then(|n| dtype.nbytes(n));
        let rule = self.rule(name, shape, nbytes.unwrap_or(u64::MAX));
        let share = parallel::share(rule, shape, &self.split).map_err(|e| of_tensor(name, e))?;
        Ok(share.map_or(TensorSlice::Whole, slice_of))
    }

    fn rule(&self, name: &str, shape: &[u64], nbytes: u64) -> Rule {
        // a bias is divided as its matrix is, however small it is
        if shape.len() < 2 && nbytes <= SMALL_VECTOR && !name.ends_with("bias") {
            Rule::Replicated
        } else {
            self.rules.rule(name)
        }
    }
}

fn slice_of(AxisShare { axis, mut ranges }: AxisShare) -> TensorSlice {
    match &mut ranges[..] {
        [range] => TensorSlice::Range {
            axis,
            range: std::mem::take(range),
        },
        _ => TensorSlice::Joined { axis, ranges },
    }
}

/// The bytes of a worker's share of a stored tensor, of this shape in items of `item` bytes.
pub(crate) fn stored_runs(
    catalog: &Catalog,
    info: &TensorInfo,
    rule: Rule,
    shape: &[u64],
    item: u64,
    split: &Split,
) -> Result<Vec<StridedRange>> {
    let whole = || parallel::slice(Rule::Replicated, shape, item, split);
    let runs = match stored_share(catalog, info, rule, shape, split) {
        Ok(None) => whole(),
        Ok(Some(share)) => share.runs(shape, item).or_else(|error| {
            // more rows of inputs than a template can count
            if packed::inputs_first(catalog, info) {
                whole()
            } else {
                Err(error)
            }
        }),
        Err(error) => Err(error),
    };
    runs.map_err(|e| of_tensor(&info.name, e))
}

/// A worker's share of a stored tensor, of this shape in items: also of one that is stored as `[inputs, outputs]`.
fn stored_share(
    catalog: &Catalog,
    info: &TensorInfo,
    rule: Rule,
    shape: &[u64],
    split: &Split,
) -> anamnesis_template::Result<Option<AxisShare>> {
    if packed::inputs_first(catalog, info) {
        packed::share(rule, shape, split)
    } else {
        parallel::share(rule, shape, split)
    }
}

/// The shape in indivisible items: elements, blocks, or elements that fill whole bytes. `None` if a row ends inside of an
/// item, or the elements of the tensor do not stand for themselves.
pub(crate) fn item_shape(info: &TensorInfo) -> Option<Vec<u64>> {
    // the place of a row in their bytes does not follow from its number
    if matches!(info.layout, Layout::Sparse(_) | Layout::Absent) || info.quantizer().is_some() {
        return None;
    }
    let (per_item, _) = info.encoding.unit();
    let mut shape = info.shape.to_vec();
    if per_item > 1 {
        let last = shape.last_mut()?;
        *last = last.is_multiple_of(per_item).then_some(*last / per_item)?;
    }
    Some(shape)
}

/// An error of the arithmetic, with the tensor's name.
pub(crate) fn of_tensor(name: &str, error: anamnesis_template::Error) -> Error {
    Error::from(error).context(&format!("tensor {}", quote(name)))
}
