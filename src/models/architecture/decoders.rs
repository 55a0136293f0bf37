//! Decoders whose tensors are stored as their class has them, or nearly: GLM-4, Command R, Granite, StarCoder 2, StableLM.
//!
//! Sources: llama.cpp `conversion/{glm,command_r,granite,starcoder,stablelm}.py`, gguf-py `tensor_mapping.py`.

use crate::base::error::Result;

use super::Architecture;
use super::config::CheckpointConfig;
use super::llama::{DECODER, ROTARY};
use super::model::Model;
use super::rules::{TensorRule, changed, expert, same};

static GLM4_NAMES: &[TensorRule] = &[
    same(
        &["blk.{i}.post_attention_norm"],
        "model.layers.{i}.post_self_attn_layernorm",
    ),
    same(
        &["blk.{i}.post_ffw_norm"],
        "model.layers.{i}.post_mlp_layernorm",
    ),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.gate_up_proj"),
];

/// `general.architecture` = `glm4`.
pub(super) const GLM4: Architecture = Architecture {
    name: "glm4",
    tensors: &[GLM4_NAMES, DECODER],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::decoder("Glm4ForCausalLM", "glm4", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.partial_rotary(model)?;
        config.rotary(model)?;
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
};

/// `general.architecture` = `command-r`.
pub(super) const COMMAND_R: Architecture = Architecture {
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
};

/// `general.architecture` = `granite`.
pub(super) const GRANITE: Architecture = Architecture {
    name: "granite",
    tensors: &[ROTARY, DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = CheckpointConfig::decoder("GraniteForCausalLM", "granite", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.rotary(model)?;
        let scales = [
            ("attention_multiplier", "attention.scale"),
            ("embedding_multiplier", "embedding_scale"),
            ("residual_multiplier", "residual_scale"),
            ("logits_scaling", "logit_scale"),
        ];
        for (key, stored) in scales {
            config.set_some(key, model.float(stored));
        }
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        config.set("mlp_bias", model.has_tensor("blk.0.ffn_up.bias"));
        Ok(config)
    },
};

static STARCODER2_NAMES: &[TensorRule] = &[
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.c_fc"),
    same(&["blk.{i}.ffn_down"], "model.layers.{i}.mlp.c_proj"),
];

/// `general.architecture` = `starcoder2`.
pub(super) const STARCODER2: Architecture = Architecture {
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
};

/// Norms of each head, which the converter stacks.
static STABLELM_NORMS: &[TensorRule] = &[
    changed(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_layernorm.norms.{e}",
        expert,
    ),
    changed(
        &["blk.{i}.attn_k_norm"],
        "model.layers.{i}.self_attn.k_layernorm.norms.{e}",
        expert,
    ),
];

/// `general.architecture` = `stablelm`.
pub(super) const STABLELM: Architecture = Architecture {
    name: "stablelm",
    tensors: &[STABLELM_NORMS, DECODER],
    omitted: &[],
    config: stablelm,
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
