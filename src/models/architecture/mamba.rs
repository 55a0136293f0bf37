//! Mamba.
//!
//! Sources: llama.cpp `conversion/mamba.py` (`A = -exp(A_log)`, the convolution without its dimension of one), gguf-py
//! `tensor_mapping.py`; transformers `MambaTensorProcessor`.

use crate::base::error::Result;

use super::Architecture;
use super::config::CheckpointConfig;
use super::model::Model;
use super::rules::{ChangedTensor, StoredTensors, TensorRule, changed, same};

static NAMES: &[TensorRule] = &[
    same(&["token_embd"], "backbone.embeddings"),
    same(&["output_norm"], "backbone.norm_f"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "backbone.layers.{i}.norm"),
    same(&["blk.{i}.ssm_in"], "backbone.layers.{i}.mixer.in_proj"),
    changed(
        &["blk.{i}.ssm_conv1d.weight"],
        "backbone.layers.{i}.mixer.conv1d.weight",
        convolution,
    ),
    same(
        &["blk.{i}.ssm_conv1d.bias"],
        "backbone.layers.{i}.mixer.conv1d.bias",
    ),
    same(&["blk.{i}.ssm_x"], "backbone.layers.{i}.mixer.x_proj"),
    same(&["blk.{i}.ssm_dt"], "backbone.layers.{i}.mixer.dt_proj"),
    changed(
        &["blk.{i}.ssm_a"],
        "backbone.layers.{i}.mixer.A_log",
        |_, stored| stored.mapped(|value| (-value).ln()),
    ),
    same(&["blk.{i}.ssm_d"], "backbone.layers.{i}.mixer.D"),
    same(&["blk.{i}.ssm_out"], "backbone.layers.{i}.mixer.out_proj"),
];

fn convolution(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let &[channels, kernel] = stored.shape(0) else {
        return Err(stored.wrong(0));
    };
    stored.rows_from(0, &[channels, 1, kernel])
}

/// `general.architecture` = `mamba`.
pub(super) const MAMBA: Architecture = Architecture {
    name: "mamba",
    tensors: &[NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("MambaForCausalLM", "mamba");
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.required("embedding_length")?);
        config.set("num_hidden_layers", model.required("block_count")?);
        config.set("state_size", model.required("ssm.state_size")?);
        config.set("conv_kernel", model.required("ssm.conv_kernel")?);
        config.set("intermediate_size", model.required("ssm.inner_size")?);
        config.set("time_step_rank", model.required("ssm.time_step_rank")?);
        let epsilon = model.required_float("attention.layer_norm_rms_epsilon")?;
        config.set("layer_norm_epsilon", epsilon);
        config.set("use_bias", model.has_tensor("blk.0.ssm_in.bias"));
        config.set("use_conv_bias", model.has_tensor("blk.0.ssm_conv1d.bias"));
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    },
};
