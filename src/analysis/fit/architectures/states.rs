//! The states of recurrent and convolutional layers, by architecture.

use crate::analysis::fit::layer::{LayerCache, StateShape};
use crate::base::error::{Error, Result};
use crate::models::config::{ModelConfig, keys};

/// An architecture without states.
pub(super) fn none(_: &ModelConfig) -> Result<LayerCache> {
    Err(Error::malformed(
        "the configuration has recurrent layers, which this architecture has not",
    ))
}

/// A size that was computed from a configuration.
fn product(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::malformed("the sizes of the configuration exceed 64 bits")
}

/// Channels by the width of a hidden state.
fn expanded(config: &ModelConfig) -> Result<u64> {
    let expansion = config.number(&keys::STATE_EXPANSION).unwrap_or(2);
    product(expansion, config.required(&keys::HIDDEN_SIZE)?)
}

/// Mamba: a state per channel.
pub(super) fn mamba(config: &ModelConfig) -> Result<LayerCache> {
    // a model of such layers alone calls their channels as others call the width of their feed-forward networks
    let stated = config.number(&keys::FEED_FORWARD);
    let stated = stated.or_else(|| config.number(&keys::STATE_CHANNELS));
    of_channels(config, stated.map_or_else(|| expanded(config), Ok)?)
}

/// Mamba's layers in a model that has feed-forward networks too.
pub(super) fn jamba(config: &ModelConfig) -> Result<LayerCache> {
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
pub(super) fn mamba2(config: &ModelConfig) -> Result<LayerCache> {
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

/// Gated delta networks: states of heads of values, and a convolution over queries, keys and values.
pub(super) fn gated_delta(config: &ModelConfig) -> Result<LayerCache> {
    let k = config.required(&keys::LINEAR_KEY_DIM)?;
    let v = config.required(&keys::LINEAR_VALUE_DIM)?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: config.required(&keys::LINEAR_VALUE_HEADS)?,
        head_channels: v,
        head_state: product(k, v)?,
        groups: config.required(&keys::LINEAR_KEY_HEADS)?,
        group_channels: product(2, k)?,
        kernel: config.number(&keys::LINEAR_KERNEL).unwrap_or(4),
        model_dtype: false,
    }))
}

/// Kimi delta attention: a square state per head, and three convolutions.
pub(super) fn kimi(config: &ModelConfig) -> Result<LayerCache> {
    let dim = config.required(&keys::LINEAR_HEAD_DIM)?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: config.required(&keys::LINEAR_HEADS)?,
        head_channels: product(3, dim)?,
        head_state: product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: config.required(&keys::LINEAR_KERNEL)?,
        model_dtype: false,
    }))
}

/// Lightning attention: a square state per head, in the dtype of the model.
pub(super) fn lightning(config: &ModelConfig) -> Result<LayerCache> {
    let heads = config.required(&keys::HEADS)?;
    let dim = match config.number(&keys::HEAD_DIM) {
        Some(dim) => dim,
        None => config.required(&keys::HIDDEN_SIZE)? / heads.max(1),
    };
    Ok(LayerCache::Recurrent(StateShape {
        heads,
        head_channels: 0,
        head_state: product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: 0,
        model_dtype: true,
    }))
}

/// A short convolution over the hidden states.
pub(super) fn short_conv(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Conv {
        channels: config.required(&keys::HIDDEN_SIZE)?,
        kernel: config.required(&keys::SHORT_CONVOLUTION)?,
    })
}

/// A real-gated linear recurrent unit. Its convolution keeps one input less than its width.
pub(super) fn recurrent_gemma(config: &ModelConfig) -> Result<LayerCache> {
    let stated = config.number(&keys::RECURRENT_WIDTH);
    let width = stated.map_or_else(|| config.required(&keys::HIDDEN_SIZE), Ok)?;
    let kernel = config.number(&keys::RECURRENT_KERNEL).unwrap_or(4);
    Ok(LayerCache::Recurrent(StateShape {
        heads: width,
        head_channels: 1,
        head_state: 1,
        groups: 0,
        group_channels: 0,
        kernel: kernel.saturating_sub(1),
        model_dtype: false,
    }))
}
