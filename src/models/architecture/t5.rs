//! T5: an encoder and a decoder.
//!
//! Sources: llama.cpp `conversion/t5.py`, gguf-py `tensor_mapping.py`.

use super::Architecture;
use super::config::CheckpointConfig;
use super::model::Need;
use super::rules::{TensorRule, same};

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
pub(super) const T5: Architecture = Architecture {
    name: "t5",
    tensors: &[UNGATED_NAMES, NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("T5ForConditionalGeneration", "t5");
        let layers = model.required("block_count")?;
        config.set("is_encoder_decoder", true);
        config.set("vocab_size", model.vocabulary()?);
        config.set("d_model", model.required("embedding_length")?);
        config.set("d_kv", model.head_size()?);
        config.set("d_ff", model.required("feed_forward_length")?);
        config.set("num_layers", layers);
        let decoder = model.integer("decoder_block_count").unwrap_or(layers);
        config.set("num_decoder_layers", decoder);
        config.set("num_heads", model.heads(None)?);
        let buckets = model.required("attention.relative_buckets_count")?;
        config.set("relative_attention_num_buckets", buckets);
        config.layer_norm(model, "layer_norm_epsilon")?;
        let gated = !model.satisfies(UNGATED);
        config.set(
            "feed_forward_proj",
            if gated { "gated-gelu" } else { "relu" },
        );
        config.set_some(
            "decoder_start_token_id",
            model.integer("decoder_start_token_id"),
        );
        let tied = !model.has_tensor("output.weight");
        config.set("tie_word_embeddings", tied);
        // the first models, with tied embeddings and one matrix, scale what the head multiplies
        config.set("scale_decoder_outputs", tied && !gated);
        Ok(config)
    },
};
