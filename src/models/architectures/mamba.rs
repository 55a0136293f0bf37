//! Mamba and Mamba 2.
//!
//! Sources: llama.cpp `conversion/mamba.py` (`A = -exp(A_log)`, the convolution without its dimension of one), gguf-py
//! `tensor_mapping.py`; transformers `MambaTensorProcessor`.

use crate::base::error::{Error, Result};
use crate::models::caches::{CacheRules, DECODER_CACHES, kinds, states};
use crate::models::config::keys;
use crate::models::conversion::{
    ArchitectureKeys, Change, CheckpointConfig, GgufConversion, GgufWriting, SourceModel,
    TensorRule, changed, same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;

static NAMES: &[TensorRule] = &[
    same(&["token_embd"], "backbone.embeddings"),
    same(&["output_norm"], "backbone.norm_f"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "backbone.layers.{i}.norm"),
    same(&["blk.{i}.ssm_in"], "backbone.layers.{i}.mixer.in_proj"),
    changed(
        &["blk.{i}.ssm_conv1d.weight"],
        "backbone.layers.{i}.mixer.conv1d.weight",
        CONVOLUTION,
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
        Change {
            to_hf: |_, stored| stored.mapped(|value| (-value).ln()),
            to_gguf: |_, stored| Ok(vec![stored.mapped(|value| -value.exp())?]),
        },
    ),
    same(&["blk.{i}.ssm_d"], "backbone.layers.{i}.mixer.D"),
    same(&["blk.{i}.ssm_out"], "backbone.layers.{i}.mixer.out_proj"),
];

/// The same bytes: PyTorch's `Conv1d` has a dimension for the channels of a group.
const CONVOLUTION: Change = Change {
    to_hf: |_, stored| match *stored.shape(0) {
        [channels, kernel] => stored.rows_from(0, &[channels, 1, kernel]),
        _ => Err(stored.wrong(0)),
    },
    to_gguf: |_, stored| match *stored.shape(0) {
        [channels, 1, kernel] => Ok(vec![stored.rows_from(0, &[channels, kernel])?]),
        _ => Err(stored.wrong(0)),
    },
};

/// `general.architecture` = `mamba`.
const MAMBA: GgufConversion = GgufConversion {
    name: "mamba",
    tensors: &[NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("MambaForCausalLM", "mamba");
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("num_hidden_layers", model.needed(&keys::LAYERS)?);
        config.set("state_size", model.needed(&keys::STATE_SIZE)?);
        config.set("conv_kernel", model.needed(&keys::STATE_KERNEL)?);
        config.set("intermediate_size", model.needed(&keys::STATE_CHANNELS)?);
        config.set("time_step_rank", model.required(TIME_STEP_RANK)?);
        let epsilon = model.required_float("attention.layer_norm_rms_epsilon")?;
        config.set("layer_norm_epsilon", epsilon);
        // no key states biases
        config.set("use_bias", model.has_tensor("blk.0.ssm_in.bias"));
        config.set("use_conv_bias", model.has_tensor("blk.0.ssm_conv1d.bias"));
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    },
    writing: Some(&MAMBA_WRITING),
};

static MAMBA_WRITING: GgufWriting = GgufWriting {
    classes: &["MambaForCausalLM", "MambaLMHeadModel"],
    prefix: "backbone.",
    keeps_tied_head: false,
    keys: mamba_keys,
    tokenizer: TokenizerReading::Mamba,
    ..GgufWriting::DECODER
};

fn mamba_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let width = model.needed(&keys::HIDDEN_SIZE)?;
    let channels = model.config.number(&keys::FEED_FORWARD);
    let channels = channels.or_else(|| model.config.number(&keys::STATE_CHANNELS));
    let channels = channels.unwrap_or(width.saturating_mul(2));
    if channels != width.saturating_mul(2) {
        return Err(Error::unsupported(
            "the channels of its layers are not twice its width, which llama.cpp needs of Mamba",
        ));
    }
    // without a meaning, of a model without a longest context, feed-forward networks and heads
    keys.field(&keys::CONTEXT_MAX, Some(1 << 20))?;
    keys.field(&keys::HIDDEN_SIZE, Some(width))?;
    keys.field(&keys::FEED_FORWARD, Some(0))?;
    keys.field(&keys::HEADS, Some(0))?;
    keys.field(&keys::LAYERS, Some(model.needed(&keys::LAYERS)?))?;
    let or = |field: &'static _, default| Some(model.config.number(field).unwrap_or(default));
    keys.field(&keys::STATE_KERNEL, or(&keys::STATE_KERNEL, 4))?;
    keys.field(&keys::STATE_CHANNELS, Some(channels))?;
    keys.field(&keys::STATE_SIZE, or(&keys::STATE_SIZE, 16))?;
    let rank = model.number(&["time_step_rank", "dt_rank"]);
    keys.number(TIME_STEP_RANK, rank.unwrap_or(width.div_ceil(16)))?;
    let epsilon = model.float(&["layer_norm_epsilon", "rms_norm_eps"]);
    keys.float("attention.layer_norm_rms_epsilon", epsilon.unwrap_or(1e-5))?;
    keys.flag("ssm.dt_b_c_rms", false);
    keys.file_type();
    Ok(())
}

/// The rank of the projection of time steps.
const TIME_STEP_RANK: &str = "ssm.time_step_rank";

/// Architectures of state-space layers alone.
pub(super) static MAMBA_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &["mamba", "falcon_mamba"],
        gguf: &["mamba"],
        caches: CacheRules {
            kinds: kinds::linear,
            state: states::mamba,
            ..DECODER_CACHES
        },
        conversions: &[MAMBA],
    },
    Architecture {
        model_types: &["mamba2"],
        gguf: &["mamba2"],
        caches: CacheRules {
            kinds: kinds::linear,
            state: states::mamba2,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];
