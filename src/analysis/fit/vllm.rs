//! The pages that vLLM reserves for a sequence of the longest length.
//!
//! Keys and values are stored in pages of some tokens. Layers of one kind form groups, and all groups have as many layers and
//! pages of the same size, so that one pool serves them: pages of smaller tokens hold more of them, a state is padded to a
//! page, and the last group of a kind is padded with layers (`kv_cache_utils.py`, `kv_cache_interface.py`).

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::models::config::{ModelConfig, keys};

use super::cache_type::CacheType;
use super::reservation::{
    CacheCost, LayerCost, Reservation, state_nbytes, token_nbytes, too_large,
};
use crate::models::caches::{LayerCache, LayerGroup};

/// The pages of one kind of layers, for one sequence.
#[derive(Clone, Copy, Debug)]
struct Pages {
    /// Layers of this kind.
    layers: u64,
    /// Bytes of what a page holds of a layer.
    page: u64,
    /// Tokens of a page; 0 for a state.
    block: u64,
    /// Bytes of a token; 0 for a state.
    token: u64,
    /// Pages per sequence.
    count: u64,
}

pub(super) fn cost(groups: &[LayerGroup], asked: &Reservation) -> Result<CacheCost> {
    checked(groups, asked).ok_or_else(too_large)
}

fn checked(groups: &[LayerGroup], asked: &Reservation) -> Option<CacheCost> {
    let block = block_size(groups, asked)?;
    let mut all: Vec<Option<Pages>> = Vec::new();
    for group in groups {
        all.push(pages(group, asked, block)?);
    }
    let largest = all
        .iter()
        .flatten()
        .map(|pages| pages.page)
        .max()
        .unwrap_or(0);
    let has_state = all.iter().flatten().any(|pages| pages.token == 0);
    // without the allocator for hybrids, all layers are of one kind
    let several = all.iter().flatten().count() > 1 && (asked.hybrid || has_state);
    let mut cost = CacheCost::default();
    let most = all.iter().flatten().map(|pages| pages.layers);
    let (least, most) = (most.clone().min().unwrap_or(0), most.max().unwrap_or(0));
    // nearly equal numbers of layers are padded to the larger, others are cut into groups of the smaller
    let size = if u128::from(most) * 2 < u128::from(least) * 3 {
        most
    } else {
        least
    };
    for (group, pages) in groups.iter().zip(&all) {
        let Some(mut pages) = *pages else {
            cost.groups.push(LayerCost::default());
            continue;
        };
        // a page of smaller tokens holds more of them
        if several && pages.token > 0 && pages.page > 0 && largest.is_multiple_of(pages.page) {
            pages.block = pages.block.checked_mul(largest / pages.page)?;
            pages.page = largest;
            pages.count = count(&group.cache, asked, pages.block)?;
        }
        let each = pages
            .page
            .checked_mul(pages.count)?
            .checked_mul(asked.batch)?;
        let own = each.checked_mul(pages.layers)?;
        let reserved = if several {
            let layers = pages.layers.div_ceil(size.max(1)).checked_mul(size)?;
            largest
                .checked_mul(pages.count)?
                .checked_mul(asked.batch)?
                .checked_mul(layers)?
        } else {
            own
        };
        cost.groups.push(LayerCost {
            tokens: pages.block.checked_mul(pages.count)?,
            streams: asked.batch,
            nbytes: each,
        });
        cost.padding = cost.padding.checked_add(reserved.checked_sub(own)?)?;
        cost.nbytes = cost.nbytes.checked_add(reserved)?;
    }
    Some(cost)
}

/// Tokens of a page: as asked for, or as many as make a page of the attention as large as a state.
fn block_size(groups: &[LayerGroup], asked: &Reservation) -> Option<u64> {
    let mut state = 0;
    let mut token = 0;
    for group in groups {
        match group.cache {
            LayerCache::Recurrent(_) | LayerCache::Conv { .. } => {
                state = state_page(&group.cache, asked)?.max(state)
            }
            _ => token = token_of(&group.cache, asked)?.max(token),
        }
    }
    let block = asked.block.max(1);
    if state == 0 || token == 0 {
        return Some(block);
    }
    // one pool has pages of one size, so that a page of tokens must hold a state
    let least = state.div_ceil(token).checked_next_multiple_of(block)?;
    Some(block.max(least))
}

fn token_of(cache: &LayerCache, asked: &Reservation) -> Option<u64> {
    match cache {
        LayerCache::Latent { .. } => latent_nbytes(cache, asked),
        _ => match cache.attention() {
            Some(shape) => token_nbytes(shape, asked.k, asked.v),
            None => Some(0),
        },
    }
}

/// Bytes of a token of latent attention. The keys of an indexer are FP8, with an F32 scale per 128.
pub(super) fn latent_nbytes(cache: &LayerCache, asked: &Reservation) -> Option<u64> {
    let &LayerCache::Latent { rank, rope, index } = cache else {
        return Some(0);
    };
    let keys = match asked.k {
        // the 656 bytes include the rotated keys
        CacheType::DsMla => CacheType::DsMla.row_nbytes(1, rank)?,
        k => k.row_nbytes(1, rank.checked_add(rope)?)?,
    };
    let scales = index.div_ceil(128).checked_mul(4)?;
    keys.checked_add(index)?.checked_add(scales)
}

fn state_page(cache: &LayerCache, asked: &Reservation) -> Option<u64> {
    match *cache {
        LayerCache::Recurrent(state) => {
            let dtype = if state.model_dtype {
                asked.model
            } else {
                asked.vllm_state
            };
            state_nbytes(&state, state.kernel.saturating_sub(1), asked.model, dtype)
        }
        LayerCache::Conv { channels, kernel } => asked
            .model
            .nbytes(channels.checked_mul(kernel.saturating_sub(1))?),
        _ => Some(0),
    }
}

/// The pages of a group; `Some(None)` if it keeps nothing.
#[allow(clippy::option_option)] // the outer one is an overflow
fn pages(group: &LayerGroup, asked: &Reservation, block: u64) -> Option<Option<Pages>> {
    let layers = group.layers.len() as u64;
    if matches!(group.cache, LayerCache::Shared | LayerCache::None) {
        return Some(None);
    }
    if matches!(
        group.cache,
        LayerCache::Recurrent(_) | LayerCache::Conv { .. }
    ) {
        let page = state_page(&group.cache, asked)?;
        return Some(Some(Pages {
            layers,
            page,
            block: 0,
            token: 0,
            // a state replaces itself with each token
            count: 1,
        }));
    }
    let token = token_of(&group.cache, asked)?;
    Some(Some(Pages {
        layers,
        page: token.checked_mul(block)?,
        block,
        token,
        count: count(&group.cache, asked, block)?,
    }))
}

/// Pages that a sequence of the longest length takes.
fn count(cache: &LayerCache, asked: &Reservation, block: u64) -> Option<u64> {
    let whole = asked.context;
    let block = block.max(1);
    match *cache {
        // one more, as a window need not begin at the start of a page
        LayerCache::Window { window, .. } if asked.hybrid => {
            let tokens = window
                .saturating_sub(1)
                .saturating_add(asked.step)
                .min(whole);
            tokens.div_ceil(block).checked_add(1)
        }
        LayerCache::Chunk { chunk, .. } if asked.hybrid => {
            Some(chunk.saturating_add(asked.step).min(whole).div_ceil(block))
        }
        LayerCache::Cross { tokens, .. } => Some(
            asked
                .encoder_tokens
                .or(tokens)
                .unwrap_or(whole)
                .div_ceil(block),
        ),
        _ => Some(whole.div_ceil(block)),
    }
}

/// The dtype of recurrent states that a configuration states for vLLM.
pub(super) fn state_dtype(config: &ModelConfig, model: Dtype) -> Dtype {
    match config.setting(&keys::STATE_DTYPE) {
        Some("float32") => Dtype::F32,
        Some("float16") => Dtype::F16,
        Some("bfloat16") => Dtype::BF16,
        _ => model,
    }
}
