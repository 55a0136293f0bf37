//! BERT: an encoder whose states are embeddings of texts.
//!
//! Sources: llama.cpp `conversion/bert.py`, gguf-py `tensor_mapping.py`.

use crate::models::caches::DECODER_CACHES;
use crate::models::config::keys;
use crate::models::conversion::{CheckpointConfig, GgufConversion, GgufWriting, TensorRule, same};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;

static NAMES: &[TensorRule] = &[
    same(&["token_embd"], "embeddings.word_embeddings"),
    same(&["position_embd"], "embeddings.position_embeddings"),
    same(&["token_types"], "embeddings.token_type_embeddings"),
    same(&["token_embd_norm"], "embeddings.LayerNorm"),
    same(
        &["blk.{i}.attn_q"],
        "encoder.layer.{i}.attention.self.query",
    ),
    same(&["blk.{i}.attn_k"], "encoder.layer.{i}.attention.self.key"),
    same(
        &["blk.{i}.attn_v"],
        "encoder.layer.{i}.attention.self.value",
    ),
    same(
        &["blk.{i}.attn_output"],
        "encoder.layer.{i}.attention.output.dense",
    ),
    same(
        &["blk.{i}.attn_output_norm"],
        "encoder.layer.{i}.attention.output.LayerNorm",
    ),
    same(&["blk.{i}.ffn_up"], "encoder.layer.{i}.intermediate.dense"),
    same(&["blk.{i}.ffn_down"], "encoder.layer.{i}.output.dense"),
    same(
        &["blk.{i}.layer_output_norm"],
        "encoder.layer.{i}.output.LayerNorm",
    ),
];

/// `general.architecture` = `bert`.
const BERT: GgufConversion = GgufConversion {
    name: "bert",
    tensors: &[NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("BertModel", "bert");
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("num_hidden_layers", model.needed(&keys::LAYERS)?);
        config.set("num_attention_heads", model.heads(None)?);
        config.set("intermediate_size", model.needed(&keys::FEED_FORWARD)?);
        // no key of the file names the function
        config.set("hidden_act", "gelu");
        config.set_some("max_position_embeddings", model.number(&keys::CONTEXT_MAX));
        let types = model.shape("token_types.weight").and_then(<[u64]>::first);
        config.set_some(TOKEN_TYPES, types.copied());
        config.layer_norm(model, "layer_norm_eps")?;
        Ok(config)
    },
    writing: Some(&BERT_WRITING),
};

/// The kinds of sentences that the model tells apart.
const TOKEN_TYPES: &str = "type_vocab_size";

static BERT_WRITING: GgufWriting = GgufWriting {
    classes: &["BertModel", "BertForMaskedLM", "CamembertModel"],
    prefix: "",
    dropped_prefix: "bert.",
    // an embedding is made without a head, and positions are numbers in order
    left_out: &[
        "embeddings.position_ids",
        "pooler.dense.weight",
        "pooler.dense.bias",
        "cls.predictions*",
        "cls.seq_relationship*",
    ],
    keys: |model, keys| {
        keys.language_model_with(model, None, None)?;
        keys.flag("attention.causal", false);
        keys.pooling(model)
    },
    token_types: Some(TOKEN_TYPES),
    tokenizer: TokenizerReading::WordPiece,
    ..GgufWriting::DECODER
};

/// Encoders of texts.
pub(super) static ENCODERS: &[Architecture] = &[
    // no cache: an encoder computes every token anew
    Architecture {
        model_types: &[],
        gguf: &[],
        caches: DECODER_CACHES,
        conversions: &[BERT],
    },
];
