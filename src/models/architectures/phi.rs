//! Phi 3, whose queries, keys and values are one tensor, as are its gate and up projections.
//!
//! Sources: llama.cpp `conversion/phi.py`, gguf-py `tensor_mapping.py`.

use serde_json::json;

use crate::models::caches::{CacheRules, DECODER_CACHES, kinds};
use crate::models::config::keys;
use crate::models::conversion::{CheckpointConfig, GgufConversion, TensorRule, same};

use super::Architecture;
use super::llama::DECODER;

static FUSED: &[TensorRule] = &[
    same(&["blk.{i}.attn_qkv"], "model.layers.{i}.self_attn.qkv_proj"),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.gate_up_proj"),
];

/// `general.architecture` = `phi3`.
const PHI3: GgufConversion = GgufConversion {
    name: "phi3",
    tensors: &[FUSED, DECODER],
    // no tensors of transformers: `rope_scaling` of the configuration has their numbers
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
        let window = model.number(&keys::SLIDING_WINDOW).filter(|n| *n > 0);
        config.set("sliding_window", window);
        Ok(config)
    },
};

/// Architectures of Phi.
pub(super) static PHI_FAMILY: &[Architecture] = &[Architecture {
    model_types: &["phi3", "phimoe"],
    gguf: &["phi3", "phimoe"],
    caches: CacheRules {
        kinds: kinds::all_windows,
        ..DECODER_CACHES
    },
    conversions: &[PHI3],
}];
