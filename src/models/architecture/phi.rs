//! Phi 3, whose queries, keys and values are one tensor, as are its gate and up projections.
//!
//! Sources: llama.cpp `conversion/phi.py`, gguf-py `tensor_mapping.py`.

use serde_json::json;

use super::Architecture;
use super::config::CheckpointConfig;
use super::llama::DECODER;
use super::rules::{TensorRule, same};

static FUSED: &[TensorRule] = &[
    same(&["blk.{i}.attn_qkv"], "model.layers.{i}.self_attn.qkv_proj"),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.gate_up_proj"),
];

/// `general.architecture` = `phi3`.
pub(super) const PHI3: Architecture = Architecture {
    name: "phi3",
    tensors: &[FUSED, DECODER],
    omitted: &["rope_factors_long.weight", "rope_factors_short.weight"],
    config: |model| {
        let mut config = CheckpointConfig::decoder("Phi3ForCausalLM", "phi3", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.partial_rotary(model)?;
        config.set(
            "rope_theta",
            model.float("rope.freq_base").unwrap_or(10_000.0),
        );
        let original = model.integer("rope.scaling.original_context_length");
        config.set_some("original_max_position_embeddings", original);
        let long = model.floats("rope_factors_long.weight")?;
        let short = model.floats("rope_factors_short.weight")?;
        if let (Some(long), Some(short)) = (long, short) {
            config.set(
                "rope_scaling",
                json!({"type": "longrope", "long_factor": long, "short_factor": short}),
            );
        }
        // llama.cpp's converter writes 0 for none
        let window = model.integer("attention.sliding_window").filter(|n| *n > 0);
        config.set("sliding_window", window);
        Ok(config)
    },
};
