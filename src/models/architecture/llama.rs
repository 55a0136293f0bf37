//! Llama, Mistral and Mixtral, which GGUF stores under one name.
//!
//! Sources: llama.cpp `conversion/llama.py` (`LlamaModel.permute`, `generate_extra_tensors`), gguf-py `tensor_mapping.py`;
//! transformers `LlamaTensorProcessor`.

use crate::base::error::Result;

use super::Architecture;
use super::config::CheckpointConfig;
use super::model::{Model, Need};
use super::rules::{TensorRule, changed, expert, rotary_key, rotary_query, same};

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
pub(super) const LLAMA: Architecture = Architecture {
    name: "llama",
    tensors: &[ROTARY, MIXTRAL, DECODER],
    omitted: &["rope_freqs.weight"],
    config: llama,
};

fn llama(model: &Model<'_>) -> Result<CheckpointConfig> {
    let experts = model.integer("expert_count").filter(|n| *n > 0);
    let biased = model.satisfies(Need::Tensor("blk.0.attn_q.bias"));
    let (class, model_type) = match experts {
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
        config.set("num_experts_per_tok", model.required("expert_used_count")?);
    }
    Ok(config)
}
