//! An upper line for the buffers in which llama.cpp computes a step.
//!
//! The buffer is one allocation that operations share, so its size is the size of the largest operations in flight and not a
//! sum. Only its masks follow from a formula: one per cache, of 2 bytes for each cell and token of a step (with flash
//! attention). The rest grows with the tokens of a step alone, and is bounded by the widths of all operations of a layer and
//! of the output. The bound holds for every run of llama.cpp that the tests have.

use super::reservation::{CacheCost, Reservation};
use crate::models::caches::{LayerCache, LayerGroup};
use crate::models::config::ModelConfig;

/// Bytes at most; `None` if a width is unknown.
pub(super) fn llama_cpp(
    config: &ModelConfig,
    groups: &[LayerGroup],
    cost: &CacheCost,
    asked: &Reservation,
) -> Option<u64> {
    // activations are F32, whatever the weights are
    let widths = widths(config, groups)?;
    // activations are F32, whatever the dtype of the weights
    let activations = asked.step.checked_mul(widths)?.checked_mul(4)?;
    activations.checked_add(masks(groups, cost, asked)?)
}

/// The masks: one for the layers without a window, one for those with.
fn masks(groups: &[LayerGroup], cost: &CacheCost, asked: &Reservation) -> Option<u64> {
    let (mut full, mut windowed) = (0, 0);
    for (group, layer) in groups.iter().zip(&cost.groups) {
        match group.cache {
            LayerCache::Full(_) | LayerCache::Latent { .. } => full = layer.tokens.max(full),
            LayerCache::Window { .. } | LayerCache::Chunk { .. } => {
                windowed = layer.tokens.max(windowed)
            }
            _ => {}
        }
    }
    let cells: u64 = full.checked_add(windowed)?;
    cells.checked_mul(asked.step)?.checked_mul(2)
}

/// Elements per token of all operations that may be in flight.
fn widths(config: &ModelConfig, groups: &[LayerGroup]) -> Option<u64> {
    let hidden = config.hidden_size()?;
    let vocabulary = config.vocabulary()?;
    let dense = config.feed_forward().unwrap_or(0);
    let used = config.experts_used().unwrap_or(0);
    let expert = config.expert_feed_forward().unwrap_or(dense);
    let experts = config.experts().unwrap_or(0);
    let heads = config.heads().unwrap_or(0);
    let mut attention = 0u64;
    let mut state = 0u64;
    for group in groups {
        match group.cache {
            LayerCache::Latent { rank, rope, .. } => {
                // queries in the space of the latent vector, and their products
                attention = attention.max(
                    rank.checked_add(rope)?
                        .checked_mul(heads.checked_mul(3)?.checked_add(2)?)?,
                );
            }
            LayerCache::Recurrent(shape) => {
                // projections, convolution and gates
                state = state.max(shape.conv_channels()?.checked_mul(8)?);
            }
            // layers follow each other: the widest counts, not the sum
            LayerCache::Conv { channels, .. } => state = state.max(channels.checked_mul(6)?),
            ref cache => {
                if let Some(shape) = cache.attention() {
                    let queries = heads.checked_mul(shape.k_dim.max(shape.v_dim))?;
                    let keys = shape.k_elements()?.checked_add(shape.v_elements()?)?;
                    attention =
                        attention.max(queries.checked_mul(2)?.checked_add(keys)?.checked_mul(2)?);
                }
            }
        }
    }
    let feed_forward = dense
        .max(used.checked_mul(expert.checked_add(hidden)?)?)
        .checked_mul(3)?;
    [
        vocabulary,
        hidden.checked_mul(6)?,
        attention,
        state,
        feed_forward,
        experts.checked_mul(4)?,
    ]
    .into_iter()
    .try_fold(0u64, u64::checked_add)
}
