//! Keys and values of a layer, by architecture.

use serde_json::Value as Json;

use crate::analysis::fit::engine::InferenceEngine;
use crate::analysis::fit::layer::{AttentionShape, LayerCache};
use crate::base::error::Result;
use crate::models::config::{ModelConfig, keys};

use super::patterns::LayerKind;

/// A cache of this kind with these keys and values.
fn of_kind(config: &ModelConfig, kind: LayerKind, shape: AttentionShape) -> Result<LayerCache> {
    Ok(match kind {
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

fn heads(config: &ModelConfig) -> Result<u64> {
    config.required(&keys::HEADS)
}

fn hidden(config: &ModelConfig) -> Result<u64> {
    config.required(&keys::HIDDEN_SIZE)
}

/// Heads of keys and values: as many as of queries where the configuration has no number.
fn kv_heads(config: &ModelConfig) -> Result<u64> {
    let stated = config.number(&keys::KV_HEADS);
    stated.map_or_else(|| heads(config), Ok)
}

/// Elements of a head: those of a hidden state over the heads, only if the configuration has no number.
fn head_dim(config: &ModelConfig) -> Result<u64> {
    match config.number(&keys::HEAD_DIM) {
        Some(size) => Ok(size),
        None => Ok(hidden(config)? / heads(config)?.max(1)),
    }
}

/// As most models: grouped heads of keys and values of one size.
pub(super) fn standard(
    config: &ModelConfig,
    kind: LayerKind,
    layer: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    let own = |field| config.override_of(layer, field);
    let heads = own(&keys::KV_HEADS).map_or_else(|| kv_heads(config), Ok)?;
    let dim = own(&keys::HEAD_DIM).map_or_else(|| head_dim(config), Ok)?;
    of_kind(config, kind, AttentionShape::new(heads, dim, dim))
}

/// Gemma 3, whose published configurations leave out what is as in the first model of its size.
pub(super) fn gemma3(
    config: &ModelConfig,
    kind: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    let heads = config.number(&keys::KV_HEADS).unwrap_or(4);
    let dim = config.number(&keys::HEAD_DIM).unwrap_or(256);
    of_kind(config, kind, AttentionShape::new(heads, dim, dim))
}

/// Every head of queries has its keys and values.
pub(super) fn all_heads(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    let heads = heads(config)?;
    let dim = hidden(config)? / heads.max(1);
    Ok(LayerCache::Full(AttentionShape::new(heads, dim, dim)))
}

/// One head of keys and values with `multi_query`. With the newer architecture transformers keeps them expanded to all
/// heads.
pub(super) fn falcon(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    engine: InferenceEngine,
) -> Result<LayerCache> {
    let all = heads(config)?;
    let dim = hidden(config)? / all.max(1);
    let expanded = matches!(
        engine,
        InferenceEngine::Exact | InferenceEngine::Transformers
    );
    let heads = if config.truth(&keys::GROUPED_QUERIES) == Some(true) {
        if expanded { all } else { kv_heads(config)? }
    } else if config.truth(&keys::MULTI_QUERY) != Some(false) {
        1
    } else {
        all
    };
    Ok(LayerCache::Full(AttentionShape::new(heads, dim, dim)))
}

/// Layers without a window have heads of `global_head_dim`, and `num_global_key_value_heads` of them where keys are values.
pub(super) fn gemma4(
    config: &ModelConfig,
    kind: LayerKind,
    layer: usize,
    engine: InferenceEngine,
) -> Result<LayerCache> {
    let has_overrides = config
        .value(&keys::LAYER_OVERRIDES)
        .is_some_and(Json::is_object);
    if kind == LayerKind::Window || has_overrides {
        return standard(config, kind, layer, engine);
    }
    let same = config.truth(&keys::KEYS_ARE_VALUES) == Some(true);
    let heads = config.number(&keys::GLOBAL_KV_HEADS).filter(|_| same);
    let heads = heads.map_or_else(|| kv_heads(config), Ok)?;
    let dim = config.number(&keys::GLOBAL_HEAD_DIM).unwrap_or(512);
    of_kind(config, kind, AttentionShape::new(heads, dim, dim))
}

/// Values are shorter than keys, and layers with a window have twice the heads.
pub(super) fn mimo(
    config: &ModelConfig,
    kind: LayerKind,
    layer: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    let (mut heads, mut k, mut v) = (
        kv_heads(config)?,
        head_dim(config)?,
        config.required(&keys::VALUE_HEAD_DIM)?,
    );
    if let Some(own) = config.override_of(layer, &keys::KV_HEADS) {
        heads = own;
    } else if kind == LayerKind::Window {
        let twice = heads.saturating_mul(2);
        heads = config.number(&keys::WINDOW_KV_HEADS).unwrap_or(twice);
        k = config.number(&keys::WINDOW_HEAD_DIM).unwrap_or(k);
        v = config.number(&keys::WINDOW_VALUE_HEAD_DIM).unwrap_or(v);
    }
    of_kind(config, kind, AttentionShape::new(heads, k, v))
}

/// The attention of a shared block, with heads of its own size: twice a hidden state over the heads.
pub(super) fn zamba2(
    config: &ModelConfig,
    kind: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    let dim = match config.number(&keys::SHARED_HEAD_DIM) {
        Some(dim) => dim,
        None => hidden(config)?.saturating_mul(2) / heads(config)?.max(1),
    };
    of_kind(
        config,
        kind,
        AttentionShape::new(kv_heads(config)?, dim, dim),
    )
}

/// Every attention of RecurrentGemma has a window, whatever its configuration calls the layer.
pub(super) fn recurrent_gemma(
    config: &ModelConfig,
    _: LayerKind,
    layer: usize,
    engine: InferenceEngine,
) -> Result<LayerCache> {
    standard(config, LayerKind::Window, layer, engine)
}

/// Multi-head latent attention.
pub(super) fn latent(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    Ok(LayerCache::Latent {
        rank: config.required(&keys::LATENT_RANK)?,
        rope: config.required(&keys::ROTATED_DIM)?,
        index: 0,
    })
}

/// Latent attention, with keys of an indexer that selects tokens.
pub(super) fn indexed(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    Ok(LayerCache::Latent {
        rank: config.required(&keys::LATENT_RANK)?,
        rope: config.required(&keys::ROTATED_DIM)?,
        index: config.required(&keys::INDEX_DIM)?,
    })
}

fn t5_shape(config: &ModelConfig) -> Result<AttentionShape> {
    let (heads, dim) = (
        config.required(&keys::ONLY_HEADS)?,
        config.required(&keys::KV_DIM)?,
    );
    Ok(AttentionShape::new(heads, dim, dim))
}

pub(super) fn t5(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    t5_shape(config).map(LayerCache::Full)
}

pub(super) fn t5_cross(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Cross {
        shape: t5_shape(config)?,
        tokens: config.context_max(),
    })
}

fn bart_shape(config: &ModelConfig) -> Result<AttentionShape> {
    let heads = config.required(&keys::DECODER_HEADS)?;
    let dim = hidden(config)? / heads.max(1);
    Ok(AttentionShape::new(heads, dim, dim))
}

pub(super) fn bart(
    config: &ModelConfig,
    _: LayerKind,
    _: usize,
    _: InferenceEngine,
) -> Result<LayerCache> {
    bart_shape(config).map(LayerCache::Full)
}

/// Whisper's encoder always has `max_source_positions` outputs.
pub(super) fn bart_cross(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Cross {
        shape: bart_shape(config)?,
        tokens: config
            .number(&keys::ENCODER_OUTPUTS)
            .or_else(|| config.context_max()),
    })
}
