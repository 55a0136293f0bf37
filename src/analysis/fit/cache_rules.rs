//! How many bytes an engine keeps or reserves for a number of tokens.
//!
//! | engine | full | window | state |
//! |---|---|---|---|
//! | exact, transformers | N | min(N, W − 1) | one per sequence, with the kernel's K inputs |
//! | transformers, allocated at once | N | min(N, W) | the same |
//! | llama.cpp | N up to the next 256 per sequence, or in one | min(N, W + ubatch) up to the next 256 | F32, with K − 1 inputs |
//! | vLLM | see [`vllm`](super::vllm) | | |
//!
//! All sums are checked: a number of tokens and every size may be anything up to 2⁶⁴.

use crate::base::error::Result;
use crate::base::kernel::Dtype;

use super::engine::InferenceEngine;
use super::reservation::{
    CacheCost, LayerCost, Reservation, state_nbytes, token_nbytes, too_large,
};
use super::vllm;
use crate::models::caches::{LayerCache, LayerGroup};

/// llama.cpp rounds cells up to a multiple of this.
const CELLS: u64 = 256;

/// The bytes that the groups take.
pub(super) fn cost(groups: &[LayerGroup], asked: &Reservation) -> Result<CacheCost> {
    if asked.engine == InferenceEngine::Vllm {
        return vllm::cost(groups, asked);
    }
    let mut cost = CacheCost::default();
    for group in groups {
        // layers of a group keep the same: computed once
        let layer = of_layer(&group.cache, asked).ok_or_else(too_large)?;
        let nbytes = layer.nbytes.checked_mul(group.layers.len() as u64);
        let sum = nbytes.and_then(|nbytes| cost.nbytes.checked_add(nbytes));
        cost.nbytes = sum.ok_or_else(too_large)?;
        cost.groups.push(layer);
    }
    Ok(cost)
}

fn of_layer(cache: &LayerCache, asked: &Reservation) -> Option<LayerCost> {
    match asked.engine {
        // the others keep what they need, except as `preallocated` says
        InferenceEngine::LlamaCpp => llama_cpp(cache, asked),
        _ => transformers(cache, asked),
    }
}

/// A layer that keeps `tokens` tokens of `each` bytes in `streams` caches.
fn of_tokens(tokens: u64, streams: u64, each: u64) -> Option<LayerCost> {
    Some(LayerCost {
        tokens,
        streams,
        nbytes: tokens.checked_mul(each)?.checked_mul(streams)?,
    })
}

/// A layer that keeps `each` bytes per sequence.
fn of_state(each: u64, sequences: u64) -> Option<LayerCost> {
    Some(LayerCost {
        tokens: 0,
        streams: sequences,
        nbytes: each.checked_mul(sequences)?,
    })
}

fn transformers(cache: &LayerCache, asked: &Reservation) -> Option<LayerCost> {
    let &Reservation {
        context,
        batch,
        k,
        v,
        ..
    } = asked;
    let windowed = |shape, window: u64| {
        let held = if asked.preallocated {
            window
        } else {
            // the window includes the token of the step, whose keys are not in the cache yet
            window.saturating_sub(1)
        };
        of_tokens(context.min(held), batch, token_nbytes(shape, k, v)?)
    };
    match *cache {
        LayerCache::Full(shape) => of_tokens(context, batch, token_nbytes(shape, k, v)?),
        LayerCache::Window { shape, window } => windowed(shape, window),
        LayerCache::Chunk { shape, chunk } => windowed(shape, chunk),
        LayerCache::Latent { rank, rope, index } => {
            let parts = [
                k.row_nbytes(1, rank)?,
                v.row_nbytes(1, rope)?,
                k.row_nbytes(1, index)?,
            ];
            let each = parts.into_iter().try_fold(0u64, u64::checked_add)?;
            of_tokens(context, batch, each)
        }
        LayerCache::Recurrent(state) => {
            let dtype = if state.model_dtype {
                asked.model
            } else {
                Dtype::F32
            };
            of_state(
                state_nbytes(&state, state.kernel, asked.model, dtype)?,
                batch,
            )
        }
        LayerCache::Conv { channels, kernel } => {
            of_state(asked.model.nbytes(channels.checked_mul(kernel)?)?, batch)
        }
        LayerCache::Cross { shape, tokens } => {
            // a model that names no number is given as many outputs as tokens
            let tokens = asked.encoder_tokens.or(tokens).unwrap_or(context);
            of_tokens(tokens, batch, token_nbytes(shape, k, v)?)
        }
        LayerCache::Shared | LayerCache::None => Some(LayerCost::default()),
    }
}

/// llama.cpp: `llama_kv_cache`, `llama_kv_cache_iswa`, `llama_memory_recurrent`.
fn llama_cpp(cache: &LayerCache, asked: &Reservation) -> Option<LayerCost> {
    let &Reservation { batch, k, v, .. } = asked;
    // `--kv-unified`: one cache with the cells of all sequences, else one cache for each
    let (streams, wanted) = if asked.unified {
        (1, asked.context.checked_mul(batch)?)
    } else {
        (batch, asked.context)
    };
    let whole = wanted.checked_next_multiple_of(CELLS)?;
    let windowed = |shape, window: u64| {
        let cells = if asked.whole_windows {
            whole
        } else {
            let sharing = if asked.unified { batch } else { 1 };
            // saturated: a larger window than the context is the context
            let own = window.saturating_mul(sharing).saturating_add(asked.step);
            whole.min(own).checked_next_multiple_of(CELLS)?
        };
        of_tokens(cells, streams, token_nbytes(shape, k, v)?)
    };
    match *cache {
        LayerCache::Full(shape) => of_tokens(whole, streams, token_nbytes(shape, k, v)?),
        LayerCache::Window { shape, window } => windowed(shape, window),
        LayerCache::Chunk { shape, chunk } => windowed(shape, chunk),
        LayerCache::Latent { rank, rope, index } => {
            // values are a part of the keys
            let keys = k.row_nbytes(1, rank.checked_add(rope)?)?;
            of_tokens(whole, streams, keys.checked_add(k.row_nbytes(1, index)?)?)
        }
        LayerCache::Recurrent(state) => {
            let inputs = state.kernel.saturating_sub(1);
            of_state(state_nbytes(&state, inputs, Dtype::F32, Dtype::F32)?, batch)
        }
        LayerCache::Conv { channels, kernel } => {
            let elements = channels.checked_mul(kernel.saturating_sub(1))?;
            of_state(Dtype::F32.nbytes(elements)?, batch)
        }
        LayerCache::Cross { shape, tokens } => {
            let tokens = asked.encoder_tokens.or(tokens).unwrap_or(asked.context);
            of_tokens(tokens, batch, token_nbytes(shape, k, v)?)
        }
        LayerCache::Shared | LayerCache::None => Some(LayerCost::default()),
    }
}

/// Bytes that one more token of one sequence adds while no window is full, over all layers.
pub(super) fn growth(groups: &[LayerGroup], asked: &Reservation) -> Option<u64> {
    groups.iter().try_fold(0u64, |sum, group| {
        let each = match group.cache {
            LayerCache::Full(shape)
            | LayerCache::Window { shape, .. }
            | LayerCache::Chunk { shape, .. } => token_nbytes(shape, asked.k, asked.v)?,
            LayerCache::Latent { .. } => latent_nbytes(&group.cache, asked)?,
            _ => 0,
        };
        sum.checked_add(each.checked_mul(group.layers.len() as u64)?)
    })
}

fn latent_nbytes(cache: &LayerCache, asked: &Reservation) -> Option<u64> {
    let one = Reservation {
        context: 1,
        batch: 1,
        ..*asked
    };
    match asked.engine {
        InferenceEngine::Vllm => vllm::latent_nbytes(cache, asked),
        // cells come in multiples: the difference of two of them
        InferenceEngine::LlamaCpp => Some(llama_cpp(cache, &one)?.nbytes / CELLS),
        _ => Some(transformers(cache, &one)?.nbytes),
    }
}

/// Bytes that do not depend on the number of tokens, of all sequences.
pub(super) fn fixed(groups: &[LayerGroup], cost: &CacheCost) -> Option<u64> {
    groups
        .iter()
        .zip(&cost.groups)
        .try_fold(0u64, |sum, (group, layer)| {
            let grows = group.cache.attention().is_some()
                || matches!(group.cache, LayerCache::Latent { .. });
            let is_fixed = !grows || matches!(group.cache, LayerCache::Cross { .. });
            let each = if is_fixed { layer.nbytes } else { 0 };
            sum.checked_add(each.checked_mul(group.layers.len() as u64)?)
        })
}
