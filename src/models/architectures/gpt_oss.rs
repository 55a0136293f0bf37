//! gpt-oss, whose experts transformers stores stacked, `[in, out]`, with the columns of gate and up in turn.
//!
//! Sources: llama.cpp `conversion/gpt_oss.py`, gguf-py `tensor_mapping.py`.

use std::sync::Arc;

use crate::base::error::Result;
use crate::models::caches::{CacheRules, DECODER_CACHES, GgufFacts, LayerKind, Windows, kinds};
use crate::models::config::keys;
use crate::models::conversion::{
    Change, ChangedTensor, CheckpointConfig, GgufConversion, Model, RowSource, StoredTensors,
    TRANSPOSED, TensorRule, changed, same,
};
use crate::plan::Decoder;
use crate::plan::decode::TransposedMatrices;
use crate::read::catalog::Shape;

use super::Architecture;
use super::llama::DECODER;

static EXPERTS: &[TensorRule] = &[
    same(
        &["blk.{i}.post_attention_norm"],
        "model.layers.{i}.post_attention_layernorm",
    ),
    same(
        &["blk.{i}.attn_sinks.weight"],
        "model.layers.{i}.self_attn.sinks",
    ),
    same(&["blk.{i}.ffn_gate_inp"], "model.layers.{i}.mlp.router"),
    changed(
        &["blk.{i}.ffn_gate_exps.weight", "blk.{i}.ffn_up_exps.weight"],
        "model.layers.{i}.mlp.experts.gate_up_proj",
        GATE_UP,
    ),
    changed(
        &["blk.{i}.ffn_gate_exps.bias", "blk.{i}.ffn_up_exps.bias"],
        "model.layers.{i}.mlp.experts.gate_up_proj_bias",
        GATE_UP_BIAS,
    ),
    changed(
        &["blk.{i}.ffn_down_exps.weight"],
        "model.layers.{i}.mlp.experts.down_proj",
        TRANSPOSED,
    ),
    same(
        &["blk.{i}.ffn_down_exps.bias"],
        "model.layers.{i}.mlp.experts.down_proj_bias",
    ),
];

/// Rows of gate and up in turn.
fn in_turn(stored: &StoredTensors<'_>, cols: u64, shape: &[u64]) -> Result<ChangedTensor> {
    // rows that alternate are as many of the one as of the other
    if stored.shape(0) != stored.shape(1) {
        return Err(stored.wrong(1));
    }
    let rows = crate::read::catalog::elements(stored.shape(0)).unwrap_or(0) / cols.max(1);
    let sources = vec![stored.source(0)?, stored.source(1)?];
    stored.interleaved(sources, vec![1, 1], rows, cols, shape)
}

const GATE_UP: Change = Change {
    to_hf: gate_up,
    to_gguf: |_, stored| {
        let &[experts, cols, both] = stored.shape(0) else {
            return Err(stored.wrong(0));
        };
        let transposed = stored.transposed(0)?.decoder;
        alternate(stored, transposed, &[experts, both / 2, cols], cols)
    },
};

const GATE_UP_BIAS: Change = Change {
    to_hf: gate_up_bias,
    to_gguf: |_, stored| {
        let &[experts, both] = stored.shape(0) else {
            return Err(stored.wrong(0));
        };
        let decoder = stored.source(0)?.decoder;
        alternate(stored, decoder, &[experts, both / 2], 1)
    },
};

/// Every other row: of gate, and of up.
fn alternate(
    stored: &StoredTensors<'_>,
    decoder: Arc<dyn Decoder>,
    shape: &[u64],
    cols: u64,
) -> Result<Vec<ChangedTensor>> {
    let of = |first: u64| {
        let source = RowSource {
            decoder: Arc::clone(&decoder),
            first_part: 0,
        };
        stored.strided(source, (first, 1, 2), cols, shape)
    };
    Ok(vec![of(0)?, of(1)?])
}

fn gate_up(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let &[experts, rows, cols] = stored.shape(0) else {
        return Err(stored.wrong(0));
    };
    let both = rows.checked_mul(2).ok_or_else(|| stored.wrong(0))?;
    // in turn as rows, then transposed: a gather knows rows only
    let inner = in_turn(stored, cols, &[experts, both, cols])?.decoder;
    Ok(ChangedTensor {
        shape: Shape::from_slice(&[experts, cols, both]),
        decoder: Arc::new(TransposedMatrices {
            inner,
            matrices: experts,
            rows: both,
            cols,
        }),
    })
}

fn gate_up_bias(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let &[experts, length] = stored.shape(0) else {
        return Err(stored.wrong(0));
    };
    let both = length.checked_mul(2).ok_or_else(|| stored.wrong(0))?;
    in_turn(stored, 1, &[experts, both])
}

/// `general.architecture` = `gpt-oss`.
const GPT_OSS: GgufConversion = GgufConversion {
    name: "gpt-oss",
    tensors: &[EXPERTS, DECODER],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::decoder("GptOssForCausalLM", "gpt_oss", model)?;
        let length = model.needed(&keys::EXPERT_FEED_FORWARD)?;
        config.set("intermediate_size", length);
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.rotary(model)?;
        // not in the metadata, the same in both published models
        if let Some(scaling) = config.rope_scaling() {
            for (key, value) in [("beta_fast", 32.0), ("beta_slow", 1.0)] {
                if !scaling.contains_key(key) {
                    scaling.insert(key.into(), value.into());
                }
            }
            // the class rounds the bounds of YaRN's ramp by default
            scaling.insert("truncate".into(), false.into());
        }
        config.set("attention_bias", true);
        config.set("num_local_experts", model.needed(&keys::EXPERTS)?);
        config.set("num_experts_per_tok", model.needed(&keys::EXPERTS_USED)?);
        config.set_some("sliding_window", model.number(&keys::SLIDING_WINDOW));
        Ok(config)
    },
    writing: None,
};

/// gpt-oss.
pub(super) static GPT_OSS_FAMILY: &[Architecture] = &[Architecture {
    model_types: &["gpt_oss"],
    gguf: &["gpt-oss"],
    caches: CacheRules {
        kinds: |config, n| kinds::every(config, n, 2, LayerKind::Window),
        gguf: GgufFacts {
            windows: Windows::Every(2),
            ..GgufFacts::NONE
        },
        ..DECODER_CACHES
    },
    conversions: &[GPT_OSS],
}];
