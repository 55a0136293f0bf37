//! The states of recurrent layers that several architectures have.

use crate::base::error::{Error, Result};
use crate::models::config::{ModelConfig, keys};

use super::shape::{LayerCache, StateShape};

/// An architecture without states.
pub(in crate::models) fn none(_: &ModelConfig) -> Result<LayerCache> {
    Err(Error::malformed(
        "the configuration has recurrent layers, which this architecture has not",
    ))
}

/// A size that was computed from a configuration.
pub(in crate::models) fn product(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::malformed("the sizes of the configuration exceed 64 bits")
}

/// Channels by the width of a hidden state.
fn expanded(config: &ModelConfig) -> Result<u64> {
    // the default of the classes, which configurations leave out
    let expansion = config.number(&keys::STATE_EXPANSION).unwrap_or(2);
    product(expansion, config.required(&keys::HIDDEN_SIZE)?)
}

/// Mamba: a state per channel.
pub(in crate::models) fn mamba(config: &ModelConfig) -> Result<LayerCache> {
    // a model of such layers alone calls their channels as others call the width of their feed-forward networks
    let stated = config.number(&keys::FEED_FORWARD);
    let stated = stated.or_else(|| config.number(&keys::STATE_CHANNELS));
    of_channels(config, stated.map_or_else(|| expanded(config), Ok)?)
}

/// Mamba's layers in a model that has feed-forward networks too.
pub(in crate::models) fn mamba_in_hybrid(config: &ModelConfig) -> Result<LayerCache> {
    of_channels(config, expanded(config)?)
}

fn of_channels(config: &ModelConfig, channels: u64) -> Result<LayerCache> {
    Ok(LayerCache::Recurrent(StateShape {
        heads: channels,
        head_channels: 1,
        head_state: config.required(&keys::STATE_SIZE)?,
        groups: 0,
        group_channels: 0,
        kernel: config.number(&keys::STATE_KERNEL).unwrap_or(4),
        model_dtype: false,
    }))
}

/// Mamba 2: heads, and groups of them that share two projections. The names of its sizes differ by architecture.
pub(in crate::models) fn mamba2(config: &ModelConfig) -> Result<LayerCache> {
    let inner = || -> Result<u64> {
        let stated = config.number(&keys::HYBRID_STATE_CHANNELS);
        stated.map_or_else(|| expanded(config), Ok)
    };
    // a model without attention has one kind of heads, whose keys are the attention's elsewhere
    let only = config.number(&keys::ONLY_HEADS);
    let heads = config.number(&keys::STATE_HEADS).or(only);
    let heads = heads.ok_or_else(|| config.missing(&keys::STATE_HEADS))?;
    let of_only = || only.and_then(|_| config.number(&keys::HEAD_DIM));
    let dim = match config.number(&keys::STATE_HEAD_DIM).or_else(of_only) {
        Some(dim) => dim,
        // absent, or `auto`
        None => inner()? / heads.max(1),
    };
    let state = config.required(&keys::STATE_SIZE)?;
    Ok(LayerCache::Recurrent(StateShape {
        heads,
        head_channels: dim,
        head_state: product(dim, state)?,
        groups: config.number(&keys::STATE_GROUPS).unwrap_or(1),
        group_channels: product(2, state)?,
        kernel: config.number(&keys::STATE_KERNEL).unwrap_or(4),
        model_dtype: false,
    }))
}
