//! T5, BART and Whisper: an encoder and a decoder.
//!
//! Sources: llama.cpp `conversion/t5.py`, gguf-py `tensor_mapping.py`.

use crate::base::error::Result;
use crate::models::caches::{
    AttentionShape, CacheRules, CachedLayer, DECODER_CACHES, LayerCache, attention,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, CheckpointConfig, GgufConversion, GgufWriting, Need, SourceModel, TensorRule,
    same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;

/// The first models have one matrix where later ones have a gate and another.
const UNGATED: Need = Need::NoTensor("enc.blk.0.ffn_gate.weight");

static UNGATED_NAMES: &[TensorRule] = &[
    same(
        &["enc.blk.{i}.ffn_up"],
        "encoder.block.{i}.layer.1.DenseReluDense.wi",
    )
    .needs(UNGATED),
    same(
        &["dec.blk.{i}.ffn_up"],
        "decoder.block.{i}.layer.2.DenseReluDense.wi",
    )
    .needs(UNGATED),
];

static NAMES: &[TensorRule] = &[
    same(&["token_embd"], "shared"),
    same(&["output"], "lm_head"),
    same(&["enc.output_norm"], "encoder.final_layer_norm"),
    same(
        &["enc.blk.{i}.attn_norm"],
        "encoder.block.{i}.layer.0.layer_norm",
    ),
    same(
        &["enc.blk.{i}.attn_q"],
        "encoder.block.{i}.layer.0.SelfAttention.q",
    ),
    same(
        &["enc.blk.{i}.attn_k"],
        "encoder.block.{i}.layer.0.SelfAttention.k",
    ),
    same(
        &["enc.blk.{i}.attn_v"],
        "encoder.block.{i}.layer.0.SelfAttention.v",
    ),
    same(
        &["enc.blk.{i}.attn_o"],
        "encoder.block.{i}.layer.0.SelfAttention.o",
    ),
    same(
        &["enc.blk.{i}.attn_rel_b"],
        "encoder.block.{i}.layer.0.SelfAttention.relative_attention_bias",
    ),
    same(
        &["enc.blk.{i}.ffn_norm"],
        "encoder.block.{i}.layer.1.layer_norm",
    ),
    same(
        &["enc.blk.{i}.ffn_gate"],
        "encoder.block.{i}.layer.1.DenseReluDense.wi_0",
    ),
    same(
        &["enc.blk.{i}.ffn_up"],
        "encoder.block.{i}.layer.1.DenseReluDense.wi_1",
    ),
    same(
        &["enc.blk.{i}.ffn_down"],
        "encoder.block.{i}.layer.1.DenseReluDense.wo",
    ),
    same(&["dec.output_norm"], "decoder.final_layer_norm"),
    same(
        &["dec.blk.{i}.attn_norm"],
        "decoder.block.{i}.layer.0.layer_norm",
    ),
    same(
        &["dec.blk.{i}.attn_q"],
        "decoder.block.{i}.layer.0.SelfAttention.q",
    ),
    same(
        &["dec.blk.{i}.attn_k"],
        "decoder.block.{i}.layer.0.SelfAttention.k",
    ),
    same(
        &["dec.blk.{i}.attn_v"],
        "decoder.block.{i}.layer.0.SelfAttention.v",
    ),
    same(
        &["dec.blk.{i}.attn_o"],
        "decoder.block.{i}.layer.0.SelfAttention.o",
    ),
    same(
        &["dec.blk.{i}.attn_rel_b"],
        "decoder.block.{i}.layer.0.SelfAttention.relative_attention_bias",
    ),
    same(
        &["dec.blk.{i}.cross_attn_norm"],
        "decoder.block.{i}.layer.1.layer_norm",
    ),
    same(
        &["dec.blk.{i}.cross_attn_q"],
        "decoder.block.{i}.layer.1.EncDecAttention.q",
    ),
    same(
        &["dec.blk.{i}.cross_attn_k"],
        "decoder.block.{i}.layer.1.EncDecAttention.k",
    ),
    same(
        &["dec.blk.{i}.cross_attn_v"],
        "decoder.block.{i}.layer.1.EncDecAttention.v",
    ),
    same(
        &["dec.blk.{i}.cross_attn_o"],
        "decoder.block.{i}.layer.1.EncDecAttention.o",
    ),
    same(
        &["dec.blk.{i}.ffn_norm"],
        "decoder.block.{i}.layer.2.layer_norm",
    ),
    same(
        &["dec.blk.{i}.ffn_gate"],
        "decoder.block.{i}.layer.2.DenseReluDense.wi_0",
    ),
    same(
        &["dec.blk.{i}.ffn_up"],
        "decoder.block.{i}.layer.2.DenseReluDense.wi_1",
    ),
    same(
        &["dec.blk.{i}.ffn_down"],
        "decoder.block.{i}.layer.2.DenseReluDense.wo",
    ),
];

/// `general.architecture` = `t5`.
const T5: GgufConversion = GgufConversion {
    name: "t5",
    tensors: &[UNGATED_NAMES, NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("T5ForConditionalGeneration", "t5");
        let layers = model.needed(&keys::LAYERS)?;
        config.set("is_encoder_decoder", true);
        config.set("vocab_size", model.vocabulary()?);
        config.set("d_model", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("d_kv", model.head_size()?);
        config.set("d_ff", model.needed(&keys::FEED_FORWARD)?);
        config.set("num_layers", layers);
        // `num_decoder_layers` of transformers has the same default
        let decoder = model.number(&keys::DECODER_LAYERS).unwrap_or(layers);
        config.set("num_decoder_layers", decoder);
        config.set("num_heads", model.heads(None)?);
        let buckets = model.required(BUCKETS)?;
        config.set("relative_attention_num_buckets", buckets);
        config.layer_norm(model, "layer_norm_epsilon")?;
        // no key names the version: T5 1.1 has two matrices in place of one
        let gated = !model.satisfies(UNGATED);
        config.set(
            "feed_forward_proj",
            if gated { "gated-gelu" } else { "relu" },
        );
        config.set_some(START, model.integer(START));
        let tied = !model.has_tensor("output.weight");
        config.set("tie_word_embeddings", tied);
        // the first models, with tied embeddings and one matrix, scale what the head multiplies
        config.set("scale_decoder_outputs", tied && !gated);
        Ok(config)
    },
    writing: Some(&T5_WRITING),
};

static T5_WRITING: GgufWriting = GgufWriting {
    classes: &[
        "T5ForConditionalGeneration",
        "T5WithLMHeadModel",
        "MT5ForConditionalGeneration",
    ],
    prefix: "",
    shared: &[
        "decoder.embed_tokens.weight",
        "encoder.embed_tokens.weight",
        "shared.weight",
    ],
    keys: t5_keys,
    tokenizer: TokenizerReading::Unigram,
    ..GgufWriting::DECODER
};

fn t5_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    // the default of the converter
    let context = model.number(&["n_positions"]).unwrap_or(512);
    keys.field(&keys::CONTEXT_MAX, Some(context))?;
    for field in [&keys::HIDDEN_SIZE, &keys::FEED_FORWARD] {
        keys.field(field, Some(model.needed(field)?))?;
    }
    keys.field(&keys::LAYERS, Some(model.needed(&keys::STACK_LAYERS)?))?;
    let layers = model.config.number(&keys::DECODER_LAYERS);
    keys.field(&keys::DECODER_LAYERS, layers)?;
    keys.field(&keys::HEADS, Some(model.needed(&keys::ONLY_HEADS)?))?;
    let head = model.needed(&keys::KV_DIM)?;
    keys.field(&keys::HEAD_DIM, Some(head))?;
    keys.field(&keys::VALUE_HEAD_DIM, Some(head))?;
    let epsilon = model.required_float(&["layer_norm_epsilon"])?;
    keys.float("attention.layer_norm_epsilon", epsilon)?;
    let buckets = model.required(&["relative_attention_num_buckets"])?;
    keys.number(BUCKETS, buckets)?;
    keys.float("attention.layer_norm_rms_epsilon", epsilon)?;
    let start = model.required(&[START])?;
    keys.number(START, start)?;
    keys.file_type();
    Ok(())
}

/// Distances that have a bias of their own.
const BUCKETS: &str = "attention.relative_buckets_count";
/// The token that a decoder begins with, by the same key in both forms.
const START: &str = "decoder_start_token_id";

/// Architectures whose decoder attends to an encoder.
pub(super) static ENCODER_DECODERS: &[Architecture] = &[
    // GGUF: no cache of llama.cpp's was measured
    Architecture {
        model_types: &["t5", "mt5"],
        gguf: &[],
        caches: CacheRules {
            attention: t5_attention,
            cross: Some(t5_cross),
            layers: |config| {
                // only the decoder keeps a cache
                let own = config.number(&keys::DECODER_LAYERS);
                own.or_else(|| config.number(&keys::STACK_LAYERS))
            },
            ..DECODER_CACHES
        },
        conversions: &[T5],
    },
    Architecture {
        model_types: &["bart", "mbart", "whisper"],
        gguf: &[],
        caches: CacheRules {
            attention: bart_attention,
            cross: Some(bart_cross),
            layers: |config| config.number(&keys::DECODER_LAYERS),
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

fn t5_shape(config: &ModelConfig) -> Result<AttentionShape> {
    let (heads, dim) = (
        config.required(&keys::ONLY_HEADS)?,
        config.required(&keys::KV_DIM)?,
    );
    Ok(AttentionShape::new(heads, dim, dim))
}

fn t5_attention(config: &ModelConfig, _: CachedLayer) -> Result<LayerCache> {
    t5_shape(config).map(LayerCache::Full)
}

fn t5_cross(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Cross {
        shape: t5_shape(config)?,
        tokens: config.context_max(),
    })
}

fn bart_shape(config: &ModelConfig) -> Result<AttentionShape> {
    let heads = config.required(&keys::DECODER_HEADS)?;
    // the configuration may state 0 heads
    let dim = attention::hidden(config)? / heads.max(1);
    Ok(AttentionShape::new(heads, dim, dim))
}

fn bart_attention(config: &ModelConfig, _: CachedLayer) -> Result<LayerCache> {
    bart_shape(config).map(LayerCache::Full)
}

/// Whisper's encoder always has `max_source_positions` outputs.
fn bart_cross(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Cross {
        shape: bart_shape(config)?,
        tokens: config
            .number(&keys::ENCODER_OUTPUTS)
            .or_else(|| config.context_max()),
    })
}
