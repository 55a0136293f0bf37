//! Gemma (text), and RecurrentGemma.
//!
//! Sources: llama.cpp `conversion/gemma.py` (one is added to every norm), `src/models/gemma2.cpp` and `gemma3.cpp` (which
//! size scales the queries), gguf-py `tensor_mapping.py`; transformers `Gemma2TensorProcessor`.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::models::caches::{
    AttentionShape, CacheRules, CachedLayer, DECODER_CACHES, GgufFacts, LayerCache, LayerKind,
    LayerKinds, StateShape, Windows, attention, kinds,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, Change, CheckpointConfig, GgufConversion, GgufWriting, Model, SourceModel,
    TensorRule, changed,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;
use super::llama::DECODER;

static NORMS: &[TensorRule] = &[
    changed(&["output_norm"], "model.norm", NORM),
    changed(
        &["blk.{i}.attn_norm"],
        "model.layers.{i}.input_layernorm",
        NORM,
    ),
    changed(
        &["blk.{i}.post_attention_norm"],
        "model.layers.{i}.post_attention_layernorm",
        NORM,
    ),
    changed(
        &["blk.{i}.ffn_norm"],
        "model.layers.{i}.pre_feedforward_layernorm",
        NORM,
    ),
    changed(
        &["blk.{i}.post_ffw_norm"],
        "model.layers.{i}.post_feedforward_layernorm",
        NORM,
    ),
    changed(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_norm",
        NORM,
    ),
    changed(
        &["blk.{i}.attn_k_norm"],
        "model.layers.{i}.self_attn.k_norm",
        NORM,
    ),
];

/// transformers' norms add one to the weight; llama.cpp stores the sum.
const NORM: Change = Change {
    to_hf: |_, stored| stored.mapped(|value| value - 1.0),
    to_gguf: |_, stored| {
        // the converter adds in the precision of the checkpoint, of which it computes BF16 in F32
        let through = match stored.jobs[0].output.dtype {
            Dtype::F16 => Dtype::F16,
            _ => Dtype::F32,
        };
        Ok(vec![stored.mapped_through(|value| value + 1.0, through)?])
    },
};

/// `general.architecture` = `gemma2`.
const GEMMA2: GgufConversion = GgufConversion {
    name: "gemma2",
    tensors: &[NORMS, DECODER],
    omitted: &[],
    config: |model| {
        // 46 layers: the model of 27B parameters
        let mut config = gemma(model, "Gemma2ForCausalLM", "gemma2", 46)?;
        config.set_some(
            "attn_logit_softcapping",
            model.float("attn_logit_softcapping"),
        );
        config.rotary(model)?;
        Ok(config)
    },
    writing: Some(&GEMMA2_WRITING),
};

/// `general.architecture` = `gemma3`.
const GEMMA3: GgufConversion = GgufConversion {
    name: "gemma3",
    tensors: &[NORMS, DECODER],
    omitted: &[],
    config: |model| {
        // 62 layers: the model of 27B parameters
        let mut config = gemma(model, "Gemma3ForCausalLM", "gemma3_text", 62)?;
        config.rotary(model)?;
        // older files have no base for layers with windows: it is the same in all published models
        let local = model.float("rope.freq_base_swa").unwrap_or(10_000.0);
        config.set("rope_local_base_freq", local);
        Ok(config)
    },
    writing: Some(&GEMMA3_WRITING),
};

static GEMMA2_WRITING: GgufWriting = GgufWriting {
    classes: &["Gemma2ForCausalLM"],
    // the embedding is the output layer, which some programs write beside it
    left_out: &["lm_head.weight"],
    keys: gemma2_keys,
    tokenizer: TokenizerReading::Gemma2,
    ..GgufWriting::DECODER
};

fn gemma2_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    for field in [
        &keys::CONTEXT_MAX,
        &keys::HIDDEN_SIZE,
        &keys::LAYERS,
        &keys::FEED_FORWARD,
        &keys::HEADS,
    ] {
        keys.field(field, Some(model.needed(field)?))?;
    }
    keys.field(&keys::KV_HEADS, Some(model.key_value_heads()?))?;
    let epsilon = model.required_float(&["rms_norm_eps"])?;
    keys.float("attention.layer_norm_rms_epsilon", epsilon)?;
    let head = model.needed(&keys::HEAD_DIM)?;
    keys.field(&keys::HEAD_DIM, Some(head))?;
    keys.field(&keys::VALUE_HEAD_DIM, Some(head))?;
    keys.file_type();
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        keys.float(cap, model.required_float(&[cap])?)?;
    }
    keys.field(
        &keys::SLIDING_WINDOW,
        Some(model.needed(&keys::SLIDING_WINDOW)?),
    )
}

static GEMMA3_WRITING: GgufWriting = GgufWriting {
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    keys: gemma3_keys,
    tokenizer: TokenizerReading::Gemma3,
    ..GgufWriting::DECODER
};

/// Published configurations leave out the defaults of the class.
fn gemma3_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let config = model.config;
    let groups = config.number(&keys::KV_HEADS);
    keys.language_model_with(model, config.number(&keys::HEAD_DIM), groups)?;
    let or = |field: &'static _, default| Some(config.number(field).unwrap_or(default));
    keys.field(&keys::CONTEXT_MAX, or(&keys::CONTEXT_MAX, 131_072))?;
    keys.field(&keys::HEADS, or(&keys::HEADS, 8))?;
    let epsilon = model.float(&["rms_norm_eps"]).unwrap_or(1e-6);
    keys.float("attention.layer_norm_rms_epsilon", epsilon)?;
    let head = or(&keys::HEAD_DIM, 256);
    keys.field(&keys::HEAD_DIM, head)?;
    keys.field(&keys::VALUE_HEAD_DIM, head)?;
    let rotation = model.full_rotation();
    let base = rotation.get("rope_theta").and_then(Json::as_f64);
    keys.float("rope.freq_base", base.unwrap_or(1_000_000.0))?;
    if let Some(cap) = model.float(&["final_logit_softcapping"]) {
        keys.float("final_logit_softcapping", cap)?;
    }
    if config.number(&keys::WINDOW_PATTERN) != Some(1) {
        let window = model.needed(&keys::SLIDING_WINDOW)?;
        keys.field(&keys::SLIDING_WINDOW, Some(window))?;
    }
    keys.field(&keys::KV_HEADS, or(&keys::KV_HEADS, 4))
}

/// `large` is the number of layers of the model whose queries are scaled by the width of a head as the others' are not.
fn gemma(
    model: &Model<'_>,
    class: &'static str,
    model_type: &'static str,
    large: u64,
) -> Result<CheckpointConfig> {
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    config.set("hidden_activation", "gelu_pytorch_tanh");
    config.rms_norm(model)?;
    config.set("attention_bias", false);
    config.set_some("sliding_window", model.number(&keys::SLIDING_WINDOW));
    // null where the model has none: the classes have one by default
    let cap = model.float("final_logit_softcapping");
    config.set("final_logit_softcapping", cap);
    let scalar = if model.needed(&keys::LAYERS)? == large {
        model.needed(&keys::HIDDEN_SIZE)? / model.heads(None)?
    } else {
        model.head_size()?
    };
    config.set("query_pre_attn_scalar", scalar);
    Ok(config)
}

/// Architectures of Gemma.
pub(super) static GEMMA_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &["gemma"],
        gguf: &["gemma"],
        caches: CacheRules {
            kinds: kinds::windows_if_listed,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["gemma2"],
        gguf: &["gemma2"],
        caches: CacheRules {
            kinds: |config, n| kinds::every(config, n, 2, LayerKind::Window),
            gguf: GgufFacts {
                windows: Windows::Every(2),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[GEMMA2],
    },
    Architecture {
        model_types: &["gemma3_text"],
        gguf: &["gemma3"],
        caches: CacheRules {
            kinds: |config, n| kinds::every(config, n, 6, LayerKind::Window),
            attention: gemma3_attention,
            gguf: GgufFacts {
                windows: Windows::Every(6),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[GEMMA3],
    },
    Architecture {
        model_types: &["gemma3n_text"],
        gguf: &["gemma3n"],
        caches: CacheRules {
            kinds: |config, n| kinds::every(config, n, 5, LayerKind::Window),
            shares: true,
            gguf: GgufFacts {
                windows: Windows::Every(5),
                // both published models have it
                own_layers: Some(20),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["gemma4_text"],
        gguf: &["gemma4"],
        caches: CacheRules {
            kinds: gemma4_kinds,
            attention: gemma4_attention,
            shares: true,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["recurrent_gemma"],
        gguf: &[],
        caches: CacheRules {
            kinds: recurrent_kinds,
            attention: recurrent_attention,
            state: recurrent_state,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// Gemma 3, whose published configurations leave out what is as in the first model of its size.
fn gemma3_attention(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let heads = config.number(&keys::KV_HEADS).unwrap_or(4);
    let dim = config.number(&keys::HEAD_DIM).unwrap_or(256);
    attention::of_kind(config, layer, AttentionShape::new(heads, dim, dim))
}

/// Every sixth layer and the last attend to all tokens.
fn gemma4_kinds(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let (mut kinds, why) = kinds::every(config, n, 6, LayerKind::Window)?;
    if let Some(last) = kinds.last_mut() {
        *last = LayerKind::Full;
    }
    Ok((kinds, why))
}

/// Layers without a window have heads of `global_head_dim`, and `num_global_key_value_heads` of them where keys are values.
fn gemma4_attention(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let has_overrides = config
        .value(&keys::LAYER_OVERRIDES)
        .is_some_and(Json::is_object);
    if layer.kind == LayerKind::Window || has_overrides {
        return attention::standard(config, layer);
    }
    // the class reads the number of global heads under this switch only
    let same = config.truth(&keys::KEYS_ARE_VALUES) == Some(true);
    let heads = config.number(&keys::GLOBAL_KV_HEADS).filter(|_| same);
    let heads = heads.map_or_else(|| attention::kv_heads(config), Ok)?;
    let dim = config.number(&keys::GLOBAL_HEAD_DIM).unwrap_or(512);
    attention::of_kind(config, layer, AttentionShape::new(heads, dim, dim))
}

/// Two recurrent layers, then one with a window; or the list that is repeated.
fn recurrent_kinds(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let field = &keys::REPEATED_KINDS;
    let kind = |name: &Json| match kinds::named(config, name, field)? {
        // `attention` in the list: all of it has a window
        LayerKind::Full => Ok(LayerKind::Window),
        kind => Ok(kind),
    };
    let (types, why) = match config.list(field).filter(|list| !list.is_empty()) {
        Some(list) => (
            list.iter().map(kind).collect::<Result<Vec<_>>>()?,
            field.key(false),
        ),
        None => (
            vec![LayerKind::Linear, LayerKind::Linear, LayerKind::Window],
            kinds::OWN,
        ),
    };
    Ok((types.iter().copied().cycle().take(n).collect(), why))
}

/// Every attention of RecurrentGemma has a window, whatever its configuration calls the layer.
fn recurrent_attention(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    attention::standard(config, layer.of_kind(LayerKind::Window))
}

/// A real-gated linear recurrent unit. Its convolution keeps one input less than its width.
fn recurrent_state(config: &ModelConfig) -> Result<LayerCache> {
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
