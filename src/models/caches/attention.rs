//! Keys and values of a layer, as most architectures have them.

use crate::base::error::Result;
use crate::models::config::{ModelConfig, keys};

use super::kinds::{CachedLayer, LayerKind};
use super::shape::{AttentionShape, LayerCache};

/// A cache of this kind with these keys and values.
pub(in crate::models) fn of_kind(
    config: &ModelConfig,
    layer: CachedLayer,
    shape: AttentionShape,
) -> Result<LayerCache> {
    Ok(match layer.kind {
        LayerKind::Window => LayerCache::Window {
            shape,
            window: config
                .sliding_window()
                .ok_or_else(|| config.missing(&keys::SLIDING_WINDOW))?,
        },
        LayerKind::Chunk => LayerCache::Chunk {
            shape,
            chunk: config.required(&keys::CHUNK)?,
        },
        LayerKind::Cross => LayerCache::Cross {
            shape,
            // without an image nothing is kept
            tokens: Some(0),
        },
        _ => LayerCache::Full(shape),
    })
}

pub(in crate::models) fn heads(config: &ModelConfig) -> Result<u64> {
    config.required(&keys::HEADS)
}

pub(in crate::models) fn hidden(config: &ModelConfig) -> Result<u64> {
    config.required(&keys::HIDDEN_SIZE)
}

/// Heads of keys and values: as many as of queries where the configuration has no number.
pub(in crate::models) fn kv_heads(config: &ModelConfig) -> Result<u64> {
    let stated = config.number(&keys::KV_HEADS);
    stated.map_or_else(|| heads(config), Ok)
}

/// Elements of a head: the hidden state's over the heads, only if the configuration has no number.
pub(in crate::models) fn head_dim(config: &ModelConfig) -> Result<u64> {
    match config.number(&keys::HEAD_DIM) {
        Some(size) => Ok(size),
        // the number of heads is the file's, and may be 0
        None => Ok(hidden(config)? / heads(config)?.max(1)),
    }
}

/// As most models: grouped heads of keys and values of one size.
pub(in crate::models) fn standard(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let own = |field| config.override_of(layer.number, field);
    let heads = own(&keys::KV_HEADS).map_or_else(|| kv_heads(config), Ok)?;
    let dim = own(&keys::HEAD_DIM).map_or_else(|| head_dim(config), Ok)?;
    of_kind(config, layer, AttentionShape::new(heads, dim, dim))
}

/// Every head of queries has its keys and values.
pub(in crate::models) fn all_heads(config: &ModelConfig, _: CachedLayer) -> Result<LayerCache> {
    let heads = heads(config)?;
    let dim = hidden(config)? / heads.max(1);
    Ok(LayerCache::Full(AttentionShape::new(heads, dim, dim)))
}
