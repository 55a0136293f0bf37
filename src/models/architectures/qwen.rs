//! Qwen 2 and 3, dense and with experts, and the hybrids with gated delta networks.
//!
//! Sources: llama.cpp `conversion/qwen.py`, gguf-py `tensor_mapping.py`; transformers `Qwen2MoeTensorProcessor`.

use crate::base::error::Result;
use crate::models::caches::{
    CacheRules, DECODER_CACHES, GgufFacts, LayerCache, LayerKind, StateShape, kinds, states,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, CheckpointConfig, EXPERT, GgufConversion, GgufWriting, Model, ONE_ROW,
    SourceModel, TensorRule, changed, same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;
use super::llama::DECODER;

/// Router and experts, stacked by the converter.
pub(super) static EXPERTS: &[TensorRule] = &[
    same(&["blk.{i}.ffn_gate_inp"], "model.layers.{i}.mlp.gate"),
    changed(
        &["blk.{i}.ffn_gate_exps"],
        "model.layers.{i}.mlp.experts.{e}.gate_proj",
        EXPERT,
    ),
    changed(
        &["blk.{i}.ffn_up_exps"],
        "model.layers.{i}.mlp.experts.{e}.up_proj",
        EXPERT,
    ),
    changed(
        &["blk.{i}.ffn_down_exps"],
        "model.layers.{i}.mlp.experts.{e}.down_proj",
        EXPERT,
    ),
];

/// The expert that every token uses. ggml drops the gate's dimension of one.
static SHARED_EXPERT: &[TensorRule] = &[
    changed(
        &["blk.{i}.ffn_gate_inp_shexp"],
        "model.layers.{i}.mlp.shared_expert_gate",
        ONE_ROW,
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
const QWEN2: GgufConversion = GgufConversion {
    name: "qwen2",
    tensors: &[DECODER],
    // factors of the rotation, which transformers computes from the configuration
    omitted: &["rope_freqs.weight"],
    config: |model| dense(model, "Qwen2ForCausalLM", "qwen2"),
    writing: Some(&QWEN2_WRITING),
};

/// `general.architecture` = `qwen3`.
const QWEN3: GgufConversion = GgufConversion {
    name: "qwen3",
    tensors: &[DECODER],
    omitted: &["rope_freqs.weight"],
    config: |model| {
        let mut config = dense(model, "Qwen3ForCausalLM", "qwen3")?;
        config.set("attention_bias", model.has_tensor("blk.0.attn_q.bias"));
        Ok(config)
    },
    writing: Some(&QWEN3_WRITING),
};

/// `general.architecture` = `qwen2moe`.
const QWEN2MOE: GgufConversion = GgufConversion {
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
    writing: Some(&QWEN2MOE_WRITING),
};

/// `general.architecture` = `qwen3moe`.
const QWEN3MOE: GgufConversion = GgufConversion {
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
    writing: Some(&QWEN3MOE_WRITING),
};

static QWEN2_WRITING: GgufWriting = GgufWriting {
    classes: &["Qwen2ForCausalLM", "Qwen2Model"],
    keys: |model, keys| {
        keys.language_model(model, model.config.number(&keys::HEAD_DIM))?;
        keys.pooling(model)
    },
    tokenizer: TokenizerReading::SentencePieceElseByteLevel,
    ..GgufWriting::DECODER
};

static QWEN3_WRITING: GgufWriting = GgufWriting {
    classes: &["Qwen3ForCausalLM", "Qwen3Model"],
    keys: |model, keys| {
        keys.language_model(model, Some(qwen3_head(model)))?;
        keys.pooling(model)
    },
    tokenizer: TokenizerReading::SentencePieceElseByteLevel,
    ..GgufWriting::DECODER
};

static QWEN2MOE_WRITING: GgufWriting = GgufWriting {
    classes: &["Qwen2MoeForCausalLM"],
    keys: |model, keys| expert_keys(model, keys, model.config.number(&keys::HEAD_DIM)),
    ..GgufWriting::DECODER
};

static QWEN3MOE_WRITING: GgufWriting = GgufWriting {
    classes: &["Qwen3MoeForCausalLM"],
    keys: |model, keys| expert_keys(model, keys, Some(qwen3_head(model))),
    ..GgufWriting::DECODER
};

/// Elements of a head: the class has a number by default.
fn qwen3_head(model: &SourceModel<'_>) -> u64 {
    model.config.number(&keys::HEAD_DIM).unwrap_or(128)
}

fn expert_keys(
    model: &SourceModel<'_>,
    keys: &mut ArchitectureKeys,
    head: Option<u64>,
) -> Result<()> {
    keys.language_model(model, head)?;
    let length = model.config.number(&keys::EXPERT_FEED_FORWARD);
    keys.field(&keys::EXPERT_FEED_FORWARD, length)?;
    match model.number(&["shared_expert_intermediate_size"]) {
        Some(length) => keys.number("expert_shared_feed_forward_length", length),
        None => Ok(()),
    }
}

fn dense(
    model: &Model<'_>,
    class: &'static str,
    model_type: &'static str,
) -> Result<CheckpointConfig> {
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    config.set("hidden_act", "silu");
    config.rms_norm(model)?;
    config.rotary(model)?;
    // llama.cpp computes these architectures without a window
    config.set("use_sliding_window", false);
    Ok(config)
}

fn sparse(
    model: &Model<'_>,
    class: &'static str,
    model_type: &'static str,
) -> Result<CheckpointConfig> {
    let mut config = dense(model, class, model_type)?;
    config.set("num_experts", model.needed(&keys::EXPERTS)?);
    config.set("num_experts_per_tok", model.needed(&keys::EXPERTS_USED)?);
    let length = model.number(&keys::EXPERT_FEED_FORWARD);
    // older converters wrote no length of their own: it is a dimension of the experts
    let length = length.or_else(|| model.shape("blk.0.ffn_gate_exps.weight")?.get(1).copied());
    config.set(
        "moe_intermediate_size",
        length.ok_or_else(|| model.missing_field(&keys::EXPERT_FEED_FORWARD))?,
    );
    // llama.cpp reads experts in every layer
    config.set("decoder_sparse_step", 1);
    config.set("mlp_only_layers", serde_json::json!([]));
    Ok(config)
}

/// Architectures of Qwen.
pub(super) static QWEN_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &[
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
        ],
        gguf: &["qwen2", "qwen2moe", "qwen2vl"],
        caches: CacheRules {
            kinds: kinds::windows_after,
            ..DECODER_CACHES
        },
        conversions: &[QWEN2, QWEN2MOE],
    },
    Architecture {
        model_types: &["qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"],
        gguf: &["qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe"],
        caches: CacheRules {
            kinds: kinds::windows_if_listed,
            ..DECODER_CACHES
        },
        conversions: &[QWEN3, QWEN3MOE],
    },
    Architecture {
        model_types: &[
            "qwen3_next",
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "olmo_hybrid",
        ],
        gguf: &["qwen3next", "qwen35", "qwen35moe"],
        caches: CacheRules {
            kinds: |config, n| {
                // the default of the classes
                let interval = config.number(&keys::ATTENTION_INTERVAL).unwrap_or(4);
                kinds::every(config, n, interval, LayerKind::Linear)
            },
            state: gated_delta,
            gguf: GgufFacts {
                attention_interval: Some(4),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// Gated delta networks: states of heads of values, and a convolution over queries, keys and values.
fn gated_delta(config: &ModelConfig) -> Result<LayerCache> {
    let k = config.required(&keys::LINEAR_KEY_DIM)?;
    let v = config.required(&keys::LINEAR_VALUE_DIM)?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: config.required(&keys::LINEAR_VALUE_HEADS)?,
        head_channels: v,
        head_state: states::product(k, v)?,
        groups: config.required(&keys::LINEAR_KEY_HEADS)?,
        group_channels: states::product(2, k)?,
        // the default of the classes
        kernel: config.number(&keys::LINEAR_KERNEL).unwrap_or(4),
        model_dtype: false,
    }))
}
