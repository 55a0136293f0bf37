//! Llama, Mistral and Mixtral, which GGUF stores under one name; Llama 4, and Llama with images.
//!
//! Sources: llama.cpp `conversion/llama.py` (`LlamaModel.permute`, `generate_extra_tensors`), gguf-py `tensor_mapping.py`;
//! transformers `LlamaTensorProcessor`.

use crate::base::error::Result;
use crate::models::caches::{
    CacheRules, DECODER_CACHES, GgufFacts, LayerKind, LayerKinds, Windows, kinds,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    CheckpointConfig, GgufConversion, Model, Need, TensorRule, changed, expert, rotary_key,
    rotary_query, same,
};

use super::Architecture;

/// Names of decoders with separate projections, gated feed-forward layers and two norms per layer.
pub(super) static DECODER: &[TensorRule] = &[
    same(&["token_embd"], "model.embed_tokens"),
    same(&["output_norm"], "model.norm"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "model.layers.{i}.input_layernorm"),
    same(&["blk.{i}.attn_q"], "model.layers.{i}.self_attn.q_proj"),
    same(&["blk.{i}.attn_k"], "model.layers.{i}.self_attn.k_proj"),
    same(&["blk.{i}.attn_v"], "model.layers.{i}.self_attn.v_proj"),
    same(
        &["blk.{i}.attn_output"],
        "model.layers.{i}.self_attn.o_proj",
    ),
    same(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_norm",
    ),
    same(
        &["blk.{i}.attn_k_norm"],
        "model.layers.{i}.self_attn.k_norm",
    ),
    same(
        &["blk.{i}.ffn_norm"],
        "model.layers.{i}.post_attention_layernorm",
    ),
    same(&["blk.{i}.ffn_gate"], "model.layers.{i}.mlp.gate_proj"),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.up_proj"),
    same(&["blk.{i}.ffn_down"], "model.layers.{i}.mlp.down_proj"),
];

/// Queries and keys whose rows llama.cpp reorders.
pub(super) static ROTARY: &[TensorRule] = &[
    changed(
        &["blk.{i}.attn_q"],
        "model.layers.{i}.self_attn.q_proj",
        rotary_query,
    ),
    changed(
        &["blk.{i}.attn_k"],
        "model.layers.{i}.self_attn.k_proj",
        rotary_key,
    ),
];

/// Mixtral's router and experts: stacked, or one by one in files of 2023.
static MIXTRAL: &[TensorRule] = &[
    same(
        &["blk.{i}.ffn_gate_inp"],
        "model.layers.{i}.block_sparse_moe.gate",
    ),
    changed(
        &["blk.{i}.ffn_gate_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w1",
        expert,
    ),
    changed(
        &["blk.{i}.ffn_down_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w2",
        expert,
    ),
    changed(
        &["blk.{i}.ffn_up_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w3",
        expert,
    ),
    same(
        &["blk.{i}.ffn_gate.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w1",
    ),
    same(
        &["blk.{i}.ffn_down.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w2",
    ),
    same(
        &["blk.{i}.ffn_up.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w3",
    ),
];

/// `general.architecture` = `llama`.
const LLAMA: GgufConversion = GgufConversion {
    name: "llama",
    tensors: &[ROTARY, MIXTRAL, DECODER],
    // no tensor of transformers: `rope_scaling` of the configuration has its numbers
    omitted: &["rope_freqs.weight"],
    config: llama,
};

fn llama(model: &Model<'_>) -> Result<CheckpointConfig> {
    // a dense model may state 0
    let experts = model.number(&keys::EXPERTS).filter(|n| *n > 0);
    // no key states biases: the first layer shows them
    let biased = model.satisfies(Need::Tensor("blk.0.attn_q.bias"));
    let (class, model_type) = match experts {
        // GGUF stores Mixtral as a llama with experts
        Some(_) => ("MixtralForCausalLM", "mixtral"),
        // both classes have the same parameters; Llama's knows biases and Llama 3's frequencies
        None if model.general_name_contains("mistral") && !biased => {
            ("MistralForCausalLM", "mistral")
        }
        None => ("LlamaForCausalLM", "llama"),
    };
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    config.set("hidden_act", "silu");
    config.rms_norm(model)?;
    config.rotary(model)?;
    if model_type == "llama" {
        config.set("attention_bias", biased);
        config.set("mlp_bias", model.has_tensor("blk.0.ffn_up.bias"));
    } else {
        // the class has a window by default, and llama.cpp computes this architecture without one
        config.set("sliding_window", serde_json::Value::Null);
    }
    if let Some(experts) = experts {
        config.set("num_local_experts", experts);
        config.set("num_experts_per_tok", model.needed(&keys::EXPERTS_USED)?);
    }
    Ok(config)
}

/// Architectures of Meta and Mistral.
pub(super) static LLAMA_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &["llama"],
        gguf: &["llama"],
        caches: CacheRules {
            kinds: kinds::windows_if_listed,
            ..DECODER_CACHES
        },
        conversions: &[LLAMA],
    },
    Architecture {
        model_types: &[
            "mistral",
            "mixtral",
            "ministral",
            "ministral3",
            "mistral3_text",
        ],
        gguf: &["mistral3"],
        caches: CacheRules {
            kinds: kinds::all_windows,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["llama4_text"],
        gguf: &["llama4"],
        caches: CacheRules {
            kinds: llama4,
            gguf: GgufFacts {
                windows: Windows::Chunks(4),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["mllama_text_model"],
        gguf: &[],
        caches: CacheRules {
            kinds: mllama,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// Layers with rotated positions attend to chunks.
fn llama4(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.number(&keys::CHUNK).is_none() {
        return kinds::full(config, n);
    }
    // despite its name, the list has 1 for layers with rotation
    if let Some(kinds) = kinds::flagged(config, n, &keys::ROTATED_LAYERS, 0, LayerKind::Chunk) {
        return Ok(kinds);
    }
    // the default of the class
    let interval = config.number(&keys::UNROTATED_INTERVAL).unwrap_or(4);
    kinds::every(config, n, interval, LayerKind::Chunk)
}

/// Layers of a list attend to the image alone.
fn mllama(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let mut kinds = vec![LayerKind::Full; n];
    let field = &keys::CROSS_LAYERS;
    for number in config.list(field).unwrap_or_default() {
        let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| config.missing(field))? = LayerKind::Cross;
    }
    Ok((kinds, field.key(false)))
}
