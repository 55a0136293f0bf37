//! Qwen 2 and 3, dense and with experts.
//!
//! Sources: llama.cpp `conversion/qwen.py`, gguf-py `tensor_mapping.py`; transformers `Qwen2MoeTensorProcessor`.

use crate::base::error::Result;

use super::Architecture;
use super::config::CheckpointConfig;
use super::llama::DECODER;
use super::model::Model;
use super::rules::{TensorRule, changed, expert, one_row, same};

/// Router and experts, stacked by the converter.
pub(super) static EXPERTS: &[TensorRule] = &[
    same(&["blk.{i}.ffn_gate_inp"], "model.layers.{i}.mlp.gate"),
    changed(
        &["blk.{i}.ffn_gate_exps"],
        "model.layers.{i}.mlp.experts.{e}.gate_proj",
        expert,
    ),
    changed(
        &["blk.{i}.ffn_up_exps"],
        "model.layers.{i}.mlp.experts.{e}.up_proj",
        expert,
    ),
    changed(
        &["blk.{i}.ffn_down_exps"],
        "model.layers.{i}.mlp.experts.{e}.down_proj",
        expert,
    ),
];

/// The expert that every token uses. ggml drops the gate's dimension of one.
static SHARED_EXPERT: &[TensorRule] = &[
    changed(
        &["blk.{i}.ffn_gate_inp_shexp"],
        "model.layers.{i}.mlp.shared_expert_gate",
        one_row,
    ),
    same(
        &["blk.{i}.ffn_gate_shexp"],
        "model.layers.{i}.mlp.shared_expert.gate_proj",
    ),
    same(
        &["blk.{i}.ffn_up_shexp"],
        "model.layers.{i}.mlp.shared_expert.up_proj",
    ),
    same(
        &["blk.{i}.ffn_down_shexp"],
        "model.layers.{i}.mlp.shared_expert.down_proj",
    ),
];

/// `general.architecture` = `qwen2`.
pub(super) const QWEN2: Architecture = Architecture {
    name: "qwen2",
    tensors: &[DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| dense(model, "Qwen2ForCausalLM", "qwen2"),
};

/// `general.architecture` = `qwen3`.
pub(super) const QWEN3: Architecture = Architecture {
    name: "qwen3",
    tensors: &[DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = dense(model, "Qwen3ForCausalLM", "qwen3")?;
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
};

/// `general.architecture` = `qwen2moe`.
pub(super) const QWEN2MOE: Architecture = Architecture {
    name: "qwen2moe",
    tensors: &[EXPERTS, SHARED_EXPERT, DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = sparse(model, "Qwen2MoeForCausalLM", "qwen2_moe")?;
        // llama.cpp computes this architecture without normalising the weights of the experts
        config.set("norm_topk_prob", false);
        let shared = model.integer("expert_shared_feed_forward_length");
        let shared = shared.or_else(|| model.shape("blk.0.ffn_up_shexp.weight")?.first().copied());
        config.set_some("shared_expert_intermediate_size", shared);
        Ok(config)
    },
};

/// `general.architecture` = `qwen3moe`.
pub(super) const QWEN3MOE: Architecture = Architecture {
    name: "qwen3moe",
    tensors: &[EXPERTS, DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = sparse(model, "Qwen3MoeForCausalLM", "qwen3_moe")?;
        // llama.cpp normalises the weights of the experts, whatever the class's default is
        config.set("norm_topk_prob", true);
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
};

fn dense(
    model: &Model<'_>,
    class: &'static str,
    model_type: &'static str,
) -> Result<CheckpointConfig> {
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    config.set("hidden_act", "silu");
    config.rms_norm(model)?;
    config.rotary(model)?;
    config.set("use_sliding_window", false);
    Ok(config)
}

fn sparse(
    model: &Model<'_>,
    class: &'static str,
    model_type: &'static str,
) -> Result<CheckpointConfig> {
    let mut config = dense(model, class, model_type)?;
    config.set("num_experts", model.required("expert_count")?);
    config.set("num_experts_per_tok", model.required("expert_used_count")?);
    let length = model.integer("expert_feed_forward_length");
    // older converters wrote no length of their own: it is a dimension of the experts
    let length = length.or_else(|| model.shape("blk.0.ffn_gate_exps.weight")?.get(1).copied());
    config.set(
        "moe_intermediate_size",
        length.ok_or_else(|| model.missing("expert_feed_forward_length"))?,
    );
    config.set("decoder_sparse_step", 1);
    config.set("mlp_only_layers", serde_json::json!([]));
    Ok(config)
}
