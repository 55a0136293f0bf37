//! Gemma 2 and 3 (text).
//!
//! Sources: llama.cpp `conversion/gemma.py` (one is added to every norm), `src/models/gemma2.cpp` and `gemma3.cpp` (which
//! size scales the queries), gguf-py `tensor_mapping.py`; transformers `Gemma2TensorProcessor`.

use crate::base::error::Result;

use super::Architecture;
use super::config::CheckpointConfig;
use super::llama::DECODER;
use super::model::Model;
use super::rules::{ChangedTensor, StoredTensors, TensorRule, changed};

static NORMS: &[TensorRule] = &[
    changed(&["output_norm"], "model.norm", norm),
    changed(
        &["blk.{i}.attn_norm"],
        "model.layers.{i}.input_layernorm",
        norm,
    ),
    changed(
        &["blk.{i}.post_attention_norm"],
        "model.layers.{i}.post_attention_layernorm",
        norm,
    ),
    changed(
        &["blk.{i}.ffn_norm"],
        "model.layers.{i}.pre_feedforward_layernorm",
        norm,
    ),
    changed(
        &["blk.{i}.post_ffw_norm"],
        "model.layers.{i}.post_feedforward_layernorm",
        norm,
    ),
    changed(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_norm",
        norm,
    ),
    changed(
        &["blk.{i}.attn_k_norm"],
        "model.layers.{i}.self_attn.k_norm",
        norm,
    ),
];

/// transformers' norms add one to the weight; llama.cpp stores the sum.
fn norm(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    stored.mapped(|value| value - 1.0)
}

/// `general.architecture` = `gemma2`.
pub(super) const GEMMA2: Architecture = Architecture {
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
};

/// `general.architecture` = `gemma3`.
pub(super) const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    tensors: &[NORMS, DECODER],
    omitted: &[],
    config: |model| {
        // 62 layers: the model of 27B parameters
        let mut config = gemma(model, "Gemma3ForCausalLM", "gemma3_text", 62)?;
        config.rotary(model)?;
        let local = model.float("rope.freq_base_swa").unwrap_or(10_000.0);
        config.set("rope_local_base_freq", local);
        Ok(config)
    },
};

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
    config.set_some("sliding_window", model.integer("attention.sliding_window"));
    // null where the model has none: the classes have one by default
    let cap = model.float("final_logit_softcapping");
    config.set("final_logit_softcapping", cap);
    let scalar = if model.required("block_count")? == large {
        model.required("embedding_length")? / model.heads(None)?
    } else {
        model.head_size()?
    };
    config.set("query_pre_attn_scalar", scalar);
    Ok(config)
}
