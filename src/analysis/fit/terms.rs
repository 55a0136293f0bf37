//! The terms of an estimate: weights, cache, other models, workers.

use crate::base::kernel::Dtype;

use super::cache_rules;
use super::estimate::{
    Basis, CacheEstimate, ExtraEstimate, GroupEstimate, RankEstimate, WeightsEstimate,
};
use super::prepared::{PreparedModel, Sums};
use crate::models::caches::LayerCache;

/// A further model that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtraRole {
    Draft,
    Projector,
    Adapter,
}

/// A model that is loaded in addition.
pub(super) struct PreparedExtra<'c> {
    pub(super) role: ExtraRole,
    pub(super) path: Option<String>,
    pub(super) model: PreparedModel<'c>,
}

impl PreparedExtra<'_> {
    fn weights(&self) -> u64 {
        // one number for all workers, so the largest share
        self.model
            .workers
            .iter()
            .map(|worker| worker.nbytes)
            .max()
            .unwrap_or(0)
    }

    /// Bytes of the cache on one worker; a projector and an adapter have none.
    fn cache(&self, context: u64, batch: u64) -> Option<u64> {
        // they make inputs or change weights, and keep nothing of a token
        if self.role != ExtraRole::Draft {
            return Some(0);
        }
        // a draft has one stage
        self.model
            .sums(context, batch)
            .stages
            .first()
            .copied()
            .flatten()
    }

    pub(super) fn estimate(&self, context: u64, batch: u64) -> ExtraEstimate {
        ExtraEstimate {
            role: match self.role {
                ExtraRole::Draft => "draft",
                ExtraRole::Projector => "projector",
                ExtraRole::Adapter => "adapter",
            },
            path: self.path.clone(),
            weights_nbytes: self.weights(),
            cache_nbytes: self.cache(context, batch),
        }
    }
}

pub(super) fn sum_of_extras(extras: &[PreparedExtra<'_>], context: u64, batch: u64) -> Option<u64> {
    extras.iter().try_fold(0u64, |sum, extra| {
        let own = extra.weights().checked_add(extra.cache(context, batch)?)?;
        sum.checked_add(own)
    })
}

pub(super) fn weights_of(model: &PreparedModel<'_>, dtype: Option<Dtype>) -> WeightsEstimate {
    let weights = model.weights.as_ref();
    WeightsEstimate {
        nbytes: weights.map(|weights| weights.nbytes),
        stored_nbytes: weights.map(|weights| weights.stored),
        dtype: dtype.map_or("stored", Dtype::name).to_owned(),
        stored_dtypes: weights
            .map(|weights| weights.dtypes.clone())
            .unwrap_or_default(),
        basis: match weights {
            None => Basis::NotEstimated,
            // the sum lacks weights: no number for what it should be
            Some(weights) if weights.incomplete => Basis::NotEstimated,
            Some(_) => Basis::Exact,
        },
    }
}

pub(super) fn cache_of(model: &PreparedModel<'_>, sums: &Sums) -> CacheEstimate {
    let cost = sums.cache.as_ref();
    let groups = model.groups.iter().enumerate().map(|(i, group)| {
        let layer = cost.map(|cost| cost.groups[i]).unwrap_or_default();
        let (k, v, state) = elements(&group.cache);
        GroupEstimate {
            kind: group.cache.kind(),
            layers: group.layers.clone(),
            window: match group.cache {
                LayerCache::Window { window, .. } => Some(window),
                LayerCache::Chunk { chunk, .. } => Some(chunk),
                _ => None,
            },
            tokens: layer.tokens,
            streams: layer.streams,
            k_elements: k,
            v_elements: v,
            state_elements: state,
            nbytes_each: layer.nbytes,
            why: group.why,
        }
    });
    // a sum over 64 bits is no number either
    let overflow = cost.is_none() && model.cache_basis != Basis::NotEstimated;
    CacheEstimate {
        nbytes: cost.map(|cost| cost.nbytes),
        k_dtype: model.asked.k.to_string(),
        v_dtype: model.asked.v.to_string(),
        nbytes_per_token: cost.and_then(|_| cache_rules::growth(&model.groups, &model.asked)),
        fixed_nbytes: cost.and_then(|cost| cache_rules::fixed(&model.groups, cost)),
        padding_nbytes: cost.map_or(0, |cost| cost.padding),
        basis: if overflow {
            Basis::NotEstimated
        } else {
            model.cache_basis
        },
        groups: groups.collect(),
    }
}

/// Elements of keys, values and states of a layer; saturated.
fn elements(cache: &LayerCache) -> (u64, u64, u64) {
    match *cache {
        LayerCache::Latent { rank, rope, index } => {
            (rank.saturating_add(rope).saturating_add(index), 0, 0)
        }
        LayerCache::Recurrent(state) => {
            let conv = state
                .conv_channels()
                .and_then(|channels| channels.checked_mul(state.kernel));
            let conv = conv.unwrap_or(u64::MAX);
            (
                0,
                0,
                conv.saturating_add(state.state_elements().unwrap_or(u64::MAX)),
            )
        }
        LayerCache::Conv { channels, kernel } => (0, 0, channels.saturating_mul(kernel)),
        _ => cache.attention().map_or((0, 0, 0), |shape| {
            let of = |elements: Option<u64>| elements.unwrap_or(u64::MAX);
            (of(shape.k_elements()), of(shape.v_elements()), 0)
        }),
    }
}

pub(super) fn ranks(
    model: &PreparedModel<'_>,
    sums: &Sums,
    more: Option<u64>,
) -> Vec<RankEstimate> {
    let has_weights = model.weights.is_some();
    let workers = model.workers.iter();
    workers
        .map(|worker| RankEstimate {
            rank: worker.rank,
            tp: worker.tp,
            pp: worker.pp,
            weights_nbytes: has_weights.then_some(worker.nbytes),
            cache_nbytes: sums.stages[worker.pp as usize],
            total_nbytes: model
                .total_of(worker, sums)
                .and_then(|own| own.checked_add(more?)),
        })
        .collect()
}

/// The weakest of several: a sum is no better than its terms.
pub(super) fn weakest(terms: impl IntoIterator<Item = Basis>) -> Basis {
    let rank = |basis: &Basis| match basis {
        Basis::Exact => 0,
        Basis::Formula => 1,
        Basis::Bound => 2,
        Basis::NotEstimated => 3,
    };
    terms
        .into_iter()
        .max_by_key(rank)
        .unwrap_or(Basis::NotEstimated)
}
