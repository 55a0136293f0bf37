//! Hybrids of attention and states, whose caches alone are known: Jamba, Bamba, Granite 4, Nemotron-H, Falcon-H1, Zamba 2,
//! MiniMax, LFM2.

use crate::base::error::Result;
use crate::models::caches::{
    AttentionShape, CacheRules, CachedLayer, DECODER_CACHES, GgufFacts, LayerCache, LayerKind,
    LayerKinds, StateShape, Windows, attention, kinds, states,
};
use crate::models::config::{ModelConfig, keys};

use super::Architecture;

/// Architectures that mix layers with attention and with states.
pub(super) static HYBRIDS: &[Architecture] = &[
    Architecture {
        model_types: &["jamba"],
        gguf: &["jamba"],
        caches: CacheRules {
            kinds: jamba,
            state: states::mamba_in_hybrid,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["bamba"],
        gguf: &[],
        caches: CacheRules {
            kinds: |config, n| kinds::listed_numbers(config, n, &keys::ATTENTION_INDICES, 0),
            state: states::mamba2,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["granitemoehybrid"],
        gguf: &["granitehybrid"],
        caches: CacheRules {
            kinds: kinds::must_be_listed,
            state: states::mamba2,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["nemotron_h"],
        gguf: &["nemotron_h", "nemotron_h_moe"],
        caches: CacheRules {
            kinds: nemotron,
            state: states::mamba2,
            layers: nemotron_layers,
            gguf: GgufFacts {
                has_empty_layers: true,
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["falcon_h1"],
        gguf: &["falcon-h1"],
        caches: CacheRules {
            kinds: kinds::both,
            state: states::mamba2,
            gguf: GgufFacts {
                windows: Windows::Both,
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["zamba2"],
        gguf: &[],
        caches: CacheRules {
            kinds: kinds::must_be_listed,
            attention: zamba2,
            state: states::mamba2,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["minimax"],
        gguf: &[],
        caches: CacheRules {
            kinds: minimax,
            state: lightning,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["lfm2", "lfm2_moe"],
        gguf: &["lfm2", "lfm2moe"],
        caches: CacheRules {
            kinds: lfm2,
            state: short_conv,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

fn jamba(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    // a configuration may state 0, and this is a divisor
    let period = config.required(&keys::ATTENTION_PERIOD)?.max(1);
    let offset = config.required(&keys::ATTENTION_OFFSET)?;
    let kind = |i: usize| {
        if i as u64 % period == offset {
            LayerKind::Full
        } else {
            LayerKind::Linear
        }
    };
    Ok((
        (0..n).map(kind).collect(),
        keys::ATTENTION_PERIOD.key(false),
    ))
}

/// Number of layers of Nemotron-H: the length of its list or pattern.
fn nemotron_layers(config: &ModelConfig) -> Option<u64> {
    let listed = config.list(&keys::LAYER_KINDS);
    let listed = listed.map(|list| list.len() as u64);
    let letters = || Some(config.setting(&keys::LAYER_LETTERS)?.len() as u64);
    listed.or_else(letters).or_else(|| config.layers())
}

fn nemotron(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let field = &keys::LAYER_LETTERS;
    let letters = config.setting(field);
    let letters = letters.ok_or_else(|| config.missing(field))?;
    let kind = |letter: u8| match letter {
        b'M' => Ok(LayerKind::Linear),
        b'*' => Ok(LayerKind::Full),
        // an MLP or experts, which keep nothing
        b'-' | b'E' => Ok(LayerKind::Nothing),
        // a letter that is not known here may stand for a cache
        _ => Err(config.missing(field)),
    };
    let kinds: Result<Vec<LayerKind>> = letters.bytes().map(kind).collect();
    let kinds = kinds?;
    // a pattern of another length describes another model
    if kinds.len() != n {
        return Err(config.missing(field));
    }
    Ok((kinds, field.key(false)))
}

/// The attention of a shared block, with heads of its own size: twice a hidden state over the heads.
fn zamba2(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let dim = match config.number(&keys::SHARED_HEAD_DIM) {
        Some(dim) => dim,
        // the block reads the hidden state beside the embedding
        None => attention::hidden(config)?.saturating_mul(2) / attention::heads(config)?.max(1),
    };
    attention::of_kind(
        config,
        layer,
        AttentionShape::new(attention::kv_heads(config)?, dim, dim),
    )
}

/// Seven layers of lightning attention, then one that attends to all tokens.
fn minimax(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    match kinds::flagged(config, n, &keys::ATTENTION_FLAGS, 1, LayerKind::Linear) {
        Some(kinds) => Ok(kinds),
        None => kinds::every(config, n, 8, LayerKind::Linear),
    }
}

/// Lightning attention: a square state per head, in the dtype of the model.
fn lightning(config: &ModelConfig) -> Result<LayerCache> {
    let heads = config.required(&keys::HEADS)?;
    let dim = match config.number(&keys::HEAD_DIM) {
        Some(dim) => dim,
        None => config.required(&keys::HIDDEN_SIZE)? / heads.max(1),
    };
    Ok(LayerCache::Recurrent(StateShape {
        heads,
        head_channels: 0,
        head_state: states::product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: 0,
        model_dtype: true,
    }))
}

fn lfm2(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.list(&keys::ATTENTION_IDXS).is_none() {
        return kinds::must_be_listed(config, n);
    }
    kinds::listed_numbers(config, n, &keys::ATTENTION_IDXS, 0)
}

/// A short convolution over the hidden states.
fn short_conv(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Conv {
        channels: config.required(&keys::HIDDEN_SIZE)?,
        kernel: config.required(&keys::SHORT_CONVOLUTION)?,
    })
}
