//! Decoders without exceptions of their own: GLM-4, Command R, Granite, StarCoder 2, StableLM, and those whose caches alone are
//! known.
//!
//! Sources: llama.cpp `conversion/{glm,command_r,granite,starcoder,stablelm}.py`, gguf-py `tensor_mapping.py`.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::models::caches::{
    AttentionShape, CacheRules, CachedLayer, DECODER_CACHES, GgufFacts, LayerCache, LayerKind,
    LayerKinds, Windows, attention, kinds,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, CheckpointConfig, EXPERT, GgufConversion, GgufWriting, Model, SourceModel,
    TensorRule, changed, same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;
use super::llama::{DECODER, ROTARY};

static GLM4_NAMES: &[TensorRule] = &[
    same(
        &["blk.{i}.post_attention_norm"],
        "model.layers.{i}.post_self_attn_layernorm",
    ),
    same(
        &["blk.{i}.post_ffw_norm"],
        "model.layers.{i}.post_mlp_layernorm",
    ),
    // gate and up are one matrix, which llama.cpp stores under the name of the latter
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.gate_up_proj"),
];

/// `general.architecture` = `glm4`.
const GLM4: GgufConversion = GgufConversion {
    name: "glm4",
    tensors: &[GLM4_NAMES, DECODER],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::decoder("Glm4ForCausalLM", "glm4", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.partial_rotary(model)?;
        config.rotary(model)?;
        // no key of the file states it: the tensors do
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
    writing: Some(&GLM4_WRITING),
};

/// `general.architecture` = `command-r`.
const COMMAND_R: GgufConversion = GgufConversion {
    name: "command-r",
    tensors: &[DECODER],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::decoder("CohereForCausalLM", "cohere", model)?;
        config.set("hidden_act", "silu");
        config.layer_norm(model, "layer_norm_eps")?;
        config.rotary(model)?;
        config.set("logit_scale", model.required_float("logit_scale")?);
        config.set("use_qk_norm", model.has_tensor("blk.0.attn_q_norm.weight"));
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
    writing: Some(&COMMAND_R_WRITING),
};

/// Scales of Granite, by the keys of its configuration and of a GGUF.
const GRANITE_SCALES: [(&str, &str); 4] = [
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
];

/// `general.architecture` = `granite`.
const GRANITE: GgufConversion = GgufConversion {
    name: "granite",
    tensors: &[ROTARY, DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = CheckpointConfig::decoder("GraniteForCausalLM", "granite", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.rotary(model)?;
        // the converter writes a scale only where the model sets it; the defaults of transformers apply to the rest
        for (key, stored) in GRANITE_SCALES {
            config.set_some(key, model.float(stored));
        }
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        config.set("mlp_bias", model.has_tensor("blk.0.ffn_up.bias"));
        Ok(config)
    },
    writing: Some(&GRANITE_WRITING),
};

static STARCODER2_NAMES: &[TensorRule] = &[
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.c_fc"),
    same(&["blk.{i}.ffn_down"], "model.layers.{i}.mlp.c_proj"),
];

/// `general.architecture` = `starcoder2`.
const STARCODER2: GgufConversion = GgufConversion {
    name: "starcoder2",
    tensors: &[STARCODER2_NAMES, DECODER],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::decoder("Starcoder2ForCausalLM", "starcoder2", model)?;
        config.set("hidden_act", "gelu_pytorch_tanh");
        config.layer_norm(model, "norm_epsilon")?;
        config.rotary(model)?;
        config.set("use_bias", model.has_tensor("blk.0.attn_q.bias"));
        // llama.cpp computes this architecture without a window
        config.set("sliding_window", serde_json::Value::Null);
        Ok(config)
    },
    writing: Some(&STARCODER2_WRITING),
};

/// Norms of each head, which the converter stacks.
static STABLELM_NORMS: &[TensorRule] = &[
    changed(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_layernorm.norms.{e}",
        EXPERT,
    ),
    changed(
        &["blk.{i}.attn_k_norm"],
        // heads are stacked as experts are, and divided by the same rule
        "model.layers.{i}.self_attn.k_layernorm.norms.{e}",
        EXPERT,
    ),
];

/// `general.architecture` = `stablelm`.
const STABLELM: GgufConversion = GgufConversion {
    name: "stablelm",
    tensors: &[STABLELM_NORMS, DECODER],
    omitted: &[],
    config: stablelm,
    writing: Some(&STABLELM_WRITING),
};

fn stablelm(model: &Model<'_>) -> Result<CheckpointConfig> {
    let mut config = CheckpointConfig::decoder("StableLmForCausalLM", "stablelm", model)?;
    config.set("hidden_act", "silu");
    config.layer_norm(model, "layer_norm_eps")?;
    config.partial_rotary(model)?;
    config.rotary(model)?;
    config.set("use_qkv_bias", model.has_tensor("blk.0.attn_q.bias"));
    config.set("qk_layernorm", model.has_tensor("blk.0.attn_q_norm.weight"));
    // the converter writes that attention and feed-forward run in parallel even of models with a norm between them
    let parallel = !model.has_tensor("blk.0.ffn_norm.weight");
    config.set("use_parallel_residual", parallel);
    Ok(config)
}

static GLM4_WRITING: GgufWriting = GgufWriting {
    classes: &["Glm4ForCausalLM"],
    keys: |model, keys| {
        keys.language_model(model, model.config.number(&keys::HEAD_DIM))?;
        keys.field(
            &keys::ROTATED_DIM,
            Some(part_of(model, model.head_size()?, 0.5)),
        )
    },
    tokenizer: TokenizerReading::Glm4,
    ..GgufWriting::DECODER
};

/// The elements of a head that are rotated.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)] // elements of a head
fn part_of(model: &SourceModel<'_>, head: u64, default: f64) -> u64 {
    let rotation = model.rotation();
    let part = rotation.get("partial_rotary_factor").and_then(Json::as_f64);
    (head as f64 * part.unwrap_or(default)) as u64
}

static COMMAND_R_WRITING: GgufWriting = GgufWriting {
    classes: &["CohereForCausalLM"],
    keys: |model, keys| {
        let groups = model.key_value_heads()?;
        keys.language_model_with(model, model.config.number(&keys::HEAD_DIM), Some(groups))?;
        // the context of training, where the model states it beside a shorter one
        if let Some(context) = model.number(&["model_max_length"]) {
            keys.field(&keys::CONTEXT_MAX, Some(context))?;
        }
        keys.float("logit_scale", model.required_float(&["logit_scale"])?)?;
        keys.text("rope.scaling.type", "none");
        Ok(())
    },
    ..GgufWriting::DECODER
};

static GRANITE_WRITING: GgufWriting = GgufWriting {
    classes: &["GraniteForCausalLM"],
    keys: |model, keys| {
        keys.language_model_with(model, None, Some(model.key_value_heads()?))?;
        keys.field(&keys::VOCABULARY, Some(model.needed(&keys::VOCABULARY)?))?;
        let head = model.needed(&keys::HIDDEN_SIZE)? / model.heads()?;
        keys.field(&keys::ROTATED_DIM, Some(head))?;
        for (stated, key) in GRANITE_SCALES {
            if let Some(scale) = model.float(&[stated]).filter(|scale| *scale != 0.0) {
                keys.float(key, scale)?;
            }
        }
        Ok(())
    },
    tokenizer: TokenizerReading::Llama,
    ..GgufWriting::DECODER
};

static STARCODER2_WRITING: GgufWriting = GgufWriting {
    classes: &["Starcoder2ForCausalLM"],
    ..GgufWriting::DECODER
};

static STABLELM_WRITING: GgufWriting = GgufWriting {
    classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM"],
    keys: stablelm_keys,
    ..GgufWriting::DECODER
};

fn stablelm_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    for field in [
        &keys::CONTEXT_MAX,
        &keys::HIDDEN_SIZE,
        &keys::LAYERS,
        &keys::FEED_FORWARD,
    ] {
        keys.field(field, Some(model.needed(field)?))?;
    }
    let head = model.needed(&keys::HIDDEN_SIZE)? / model.heads()?;
    // a quarter by default of the class
    keys.field(&keys::ROTATED_DIM, Some(part_of(model, head, 0.25)))?;
    keys.field(&keys::HEADS, Some(model.heads()?))?;
    keys.field(&keys::KV_HEADS, Some(model.needed(&keys::KV_HEADS)?))?;
    let parallel = model.value(&["use_parallel_residual"]);
    keys.flag(
        "use_parallel_residual",
        parallel.and_then(Json::as_bool).unwrap_or(true),
    );
    let epsilon = model.required_float(&["layer_norm_eps", "norm_eps"])?;
    keys.float("attention.layer_norm_epsilon", epsilon)?;
    keys.file_type();
    Ok(())
}

/// Architectures that are alike.
pub(super) static DECODERS: &[Architecture] = &[
    Architecture {
        model_types: &[
            "glm",
            "glm4",
            "glm4_moe",
            "cohere",
            "granite",
            "granitemoe",
            "smollm3",
            "seed_oss",
            "minimax_m2",
            "ernie4_5",
            "ernie4_5_moe",
            "olmo",
            "olmo2",
            "olmoe",
            "stablelm",
        ],
        gguf: &[
            "glm4",
            "glm4moe",
            "command-r",
            "granite",
            "granitemoe",
            "smollm3",
            "seed_oss",
            "minimax-m2",
            "ernie4_5",
            "ernie4_5-moe",
            "stablelm",
            "olmoe",
        ],
        caches: CacheRules {
            kinds: kinds::windows_if_listed,
            ..DECODER_CACHES
        },
        conversions: &[GLM4, COMMAND_R, GRANITE, STABLELM],
    },
    Architecture {
        model_types: &["starcoder2"],
        gguf: &["starcoder2"],
        caches: CacheRules {
            kinds: kinds::all_windows,
            ..DECODER_CACHES
        },
        conversions: &[STARCODER2],
    },
    Architecture {
        model_types: &["cohere2", "olmo3", "exaone4"],
        // three layers with a window, then one without: the default of all three
        gguf: &["cohere2", "olmo2", "exaone4"],
        caches: CacheRules {
            kinds: |config, n| kinds::every(config, n, 4, LayerKind::Window),
            gguf: GgufFacts {
                windows: Windows::Every(4),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["mimo_v2_flash"],
        gguf: &["mimo2"],
        caches: CacheRules {
            kinds: mimo_kinds,
            attention: mimo_attention,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// The first layer and every sixth attend to all tokens.
fn mimo_kinds(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if let Some(kinds) = kinds::flagged(config, n, &keys::WINDOW_FLAGS, 0, LayerKind::Window) {
        return Ok(kinds);
    }
    let (mut kinds, why) = kinds::every(config, n, 6, LayerKind::Window)?;
    if let Some(first) = kinds.first_mut() {
        *first = LayerKind::Full;
    }
    Ok((kinds, why))
}

/// Values are shorter than keys, and layers with a window have twice the heads.
fn mimo_attention(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let (mut heads, mut k, mut v) = (
        attention::kv_heads(config)?,
        attention::head_dim(config)?,
        config.required(&keys::VALUE_HEAD_DIM)?,
    );
    // a value of this layer is more exact than the rule for its kind
    if let Some(own) = config.override_of(layer.number, &keys::KV_HEADS) {
        heads = own;
    } else if layer.kind == LayerKind::Window {
        let twice = heads.saturating_mul(2);
        heads = config.number(&keys::WINDOW_KV_HEADS).unwrap_or(twice);
        k = config.number(&keys::WINDOW_HEAD_DIM).unwrap_or(k);
        v = config.number(&keys::WINDOW_VALUE_HEAD_DIM).unwrap_or(v);
    }
    attention::of_kind(config, layer, AttentionShape::new(heads, k, v))
}
