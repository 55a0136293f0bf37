//! GPT-2, GPT-NeoX, BLOOM and Falcon: fused queries, keys and values, in orders of their own.
//!
//! Sources: llama.cpp `conversion/{gpt2,bloom,falcon}.py`, gguf-py `tensor_mapping.py`; transformers `GPT2TensorProcessor`,
//! `BloomTensorProcessor`.

use std::sync::Arc;

use crate::base::error::Result;
use crate::models::caches::{
    AttentionShape, CacheRules, CachedLayer, DECODER_CACHES, LayerCache, attention,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, Change, ChangedTensor, CheckpointConfig, GgufConversion, GgufWriting, Model,
    Need, RowGather, RowOrder, RowSource, SourceModel, StoredTensors, TRANSPOSED, TensorRule,
    changed, same,
};

use super::Architecture;

/// Matrices of PyTorch's `Conv1D`, which are `[in, out]`.
static GPT2_TRANSPOSED: &[TensorRule] = &[
    changed(
        &["blk.{i}.attn_qkv.weight"],
        "transformer.h.{i}.attn.c_attn.weight",
        TRANSPOSED,
    ),
    changed(
        &["blk.{i}.attn_output.weight"],
        "transformer.h.{i}.attn.c_proj.weight",
        TRANSPOSED,
    ),
    changed(
        &["blk.{i}.ffn_up.weight"],
        "transformer.h.{i}.mlp.c_fc.weight",
        TRANSPOSED,
    ),
    changed(
        &["blk.{i}.ffn_down.weight"],
        "transformer.h.{i}.mlp.c_proj.weight",
        TRANSPOSED,
    ),
];

static GPT2_NAMES: &[TensorRule] = &[
    same(&["token_embd"], "transformer.wte"),
    same(&["position_embd"], "transformer.wpe"),
    same(&["output_norm"], "transformer.ln_f"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "transformer.h.{i}.ln_1"),
    same(&["blk.{i}.ffn_norm"], "transformer.h.{i}.ln_2"),
    same(&["blk.{i}.attn_qkv"], "transformer.h.{i}.attn.c_attn"),
    same(&["blk.{i}.attn_output"], "transformer.h.{i}.attn.c_proj"),
    same(&["blk.{i}.ffn_up"], "transformer.h.{i}.mlp.c_fc"),
    same(&["blk.{i}.ffn_down"], "transformer.h.{i}.mlp.c_proj"),
];

/// `general.architecture` = `gpt2`.
const GPT2: GgufConversion = GgufConversion {
    name: "gpt2",
    // the first rule that fits applies: matrices are transposed, and their biases only renamed
    tensors: &[GPT2_TRANSPOSED, GPT2_NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("GPT2LMHeadModel", "gpt2");
        config.set("vocab_size", model.vocabulary()?);
        config.set("n_positions", model.needed(&keys::CONTEXT_MAX)?);
        config.set("n_embd", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("n_layer", model.needed(&keys::LAYERS)?);
        config.set("n_head", model.heads(None)?);
        config.set("n_inner", model.needed(&keys::FEED_FORWARD)?);
        // no key of the file names the function
        config.set("activation_function", "gelu_new");
        config.layer_norm(model, "layer_norm_epsilon")?;
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    },
    writing: Some(&GPT2_WRITING),
};

static GPT2_WRITING: GgufWriting = GgufWriting {
    classes: &["GPT2LMHeadModel"],
    prefix: "transformer.",
    keys: |model, keys| {
        keys.field(&keys::LAYERS, Some(model.needed(&keys::LAYERS)?))?;
        let context = model.number(&["n_ctx"]);
        let context = context.map_or_else(|| model.needed(&keys::CONTEXT_MAX), Ok)?;
        keys.field(&keys::CONTEXT_MAX, Some(context))?;
        four_times_wide(model, keys)?;
        keys.field(&keys::HEADS, Some(model.heads()?))?;
        let epsilon = model.required_float(&["layer_norm_epsilon"])?;
        keys.float("attention.layer_norm_epsilon", epsilon)?;
        keys.file_type();
        Ok(())
    },
    ..GgufWriting::DECODER
};

/// The width of the model, and of its feed-forward networks.
fn four_times_wide(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let width = model.needed(&keys::HIDDEN_SIZE)?;
    keys.field(&keys::HIDDEN_SIZE, Some(width))?;
    keys.field(&keys::FEED_FORWARD, Some(width.saturating_mul(4)))
}

/// Names that the classes of Bloom and Falcon have in common.
static BLOOM_AND_FALCON_NAMES: &[TensorRule] = &[
    same(&["token_embd"], "transformer.word_embeddings"),
    same(&["output_norm"], "transformer.ln_f"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "transformer.h.{i}.input_layernorm"),
    same(
        &["blk.{i}.attn_output"],
        "transformer.h.{i}.self_attention.dense",
    ),
    same(
        &["blk.{i}.ffn_norm"],
        "transformer.h.{i}.post_attention_layernorm",
    ),
    same(&["blk.{i}.ffn_up"], "transformer.h.{i}.mlp.dense_h_to_4h"),
    same(&["blk.{i}.ffn_down"], "transformer.h.{i}.mlp.dense_4h_to_h"),
];

static BLOOM_NAMES: &[TensorRule] = &[
    same(
        &["token_embd_norm"],
        "transformer.word_embeddings_layernorm",
    ),
    changed(
        &["blk.{i}.attn_qkv"],
        "transformer.h.{i}.self_attention.query_key_value",
        BLOOM_ATTENTION,
    ),
];

/// Queries, keys and values of each head in turn; llama.cpp has all queries first.
const BLOOM_ATTENTION: Change = Change {
    to_hf: |model, stored| {
        let heads = model.heads(stored.layer)?;
        stored.swapped(3, heads, third_of_head(stored, heads)?)
    },
    to_gguf: |model, stored| {
        let heads = model.heads()?;
        Ok(vec![stored.swapped(
            heads,
            3,
            third_of_head(stored, heads)?,
        )?])
    },
};

/// Rows of a head's queries; 0 where the heads are 0, which `swapped` refuses.
fn third_of_head(stored: &StoredTensors<'_>, heads: u64) -> Result<u64> {
    let rows = stored.matrix(0)?.0;
    Ok(rows.checked_div(heads.saturating_mul(3)).unwrap_or(0))
}

/// `general.architecture` = `bloom`.
const BLOOM: GgufConversion = GgufConversion {
    name: "bloom",
    tensors: &[BLOOM_NAMES, BLOOM_AND_FALCON_NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("BloomForCausalLM", "bloom");
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("n_layer", model.needed(&keys::LAYERS)?);
        config.set("n_head", model.heads(None)?);
        config.set_some("seq_length", model.number(&keys::CONTEXT_MAX));
        config.layer_norm(model, "layer_norm_epsilon")?;
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    },
    writing: Some(&BLOOM_WRITING),
};

static BLOOM_WRITING: GgufWriting = GgufWriting {
    classes: &["BloomForCausalLM", "BloomModel"],
    prefix: "transformer.",
    keys: |model, keys| {
        let width = model.needed(&keys::HIDDEN_SIZE)?;
        let context = model.number(&["seq_length"]).unwrap_or(width);
        keys.field(&keys::CONTEXT_MAX, Some(context))?;
        four_times_wide(model, keys)?;
        keys.field(&keys::LAYERS, Some(model.needed(&keys::LAYERS)?))?;
        keys.field(&keys::HEADS, Some(model.heads()?))?;
        keys.field(&keys::KV_HEADS, Some(model.heads()?))?;
        let epsilon = model.required_float(&["layer_norm_epsilon"])?;
        keys.float("attention.layer_norm_epsilon", epsilon)?;
        keys.file_type();
        Ok(())
    },
    ..GgufWriting::DECODER
};

/// Models with two norms side by side, from 40B on.
static FALCON_NORMS: &[TensorRule] = &[
    same(&["blk.{i}.attn_norm"], "transformer.h.{i}.ln_mlp").needs(TWO_NORMS),
    same(&["blk.{i}.attn_norm_2"], "transformer.h.{i}.ln_attn").needs(TWO_NORMS),
];

const TWO_NORMS: Need = Need::Tensor("blk.0.attn_norm_2.weight");

static FALCON_NAMES: &[TensorRule] = &[changed(
    &["blk.{i}.attn_qkv"],
    "transformer.h.{i}.self_attention.query_key_value",
    FALCON_ATTENTION,
)];

/// For each head of keys its queries, the key and the value; llama.cpp has all queries, then all keys, then all values.
const FALCON_ATTENTION: Change = Change {
    to_hf: falcon_grouped,
    to_gguf: falcon_ungrouped,
};

/// Rows of a head.
fn falcon_head(stored: &StoredTensors<'_>, heads: u64, groups: u64) -> Result<u64> {
    let rows = stored.matrix(0)?.0;
    let all = groups
        .checked_mul(2)
        .and_then(|both| both.checked_add(heads));
    all.and_then(|all| {
        rows.checked_div(all)
            .filter(|head| head.checked_mul(all) == Some(rows))
    })
    .filter(|_| heads.is_multiple_of(groups))
    .ok_or_else(|| stored.wrong(0))
}

fn falcon_ungrouped(
    model: &SourceModel<'_>,
    stored: &StoredTensors<'_>,
) -> Result<Vec<ChangedTensor>> {
    let (heads, groups) = (model.heads()?, falcon_groups(model));
    let head = falcon_head(stored, heads, groups)?;
    let cols = stored.matrix(0)?.1;
    let (queries, period) = (heads / groups * head, (heads / groups + 2) * head);
    let section = |first: u64, run: u64| -> Result<RowSource> {
        let rows = groups * run;
        let part = stored.strided(stored.source(0)?, (first, run, period), cols, &[rows, cols])?;
        Ok(RowSource {
            decoder: part.decoder,
            first_part: 0,
        })
    };
    let sources = vec![
        section(0, queries)?,
        section(queries, head)?,
        section(queries + head, head)?,
    ];
    let counts = vec![groups * queries, groups * head, groups * head];
    let whole = stored.interleaved(sources, counts, 1, cols, stored.shape(0))?;
    Ok(vec![whole])
}

fn falcon_grouped(model: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let (heads, groups) = (
        model.heads(stored.layer)?,
        model.key_value_heads(stored.layer)?,
    );
    let cols = stored.matrix(0)?.1;
    let head = falcon_head(stored, heads, groups)?;
    let source = stored.source(0)?;
    // three sources, so that each group takes some rows of each
    let section = |first: u64, count: u64| RowSource {
        decoder: Arc::new(RowGather {
            sources: vec![source.clone()],
            rows: count,
            cols,
            order: RowOrder::From(first),
        }),
        first_part: 0,
    };
    let (queries, keys) = (heads * head, groups * head);
    let sources = vec![
        section(0, queries),
        section(queries, keys),
        section(queries + keys, keys),
    ];
    let counts = vec![queries / groups, head, head];
    stored.interleaved(sources, counts, groups, cols, stored.shape(0))
}

/// `general.architecture` = `falcon`.
const FALCON: GgufConversion = GgufConversion {
    name: "falcon",
    tensors: &[FALCON_NORMS, FALCON_NAMES, BLOOM_AND_FALCON_NAMES],
    omitted: &[],
    config: |model| {
        let mut config = CheckpointConfig::new("FalconForCausalLM", "falcon");
        let groups = model.key_value_heads(None)?;
        // no key tells the generations of Falcon apart: their tensors do
        let two = model.satisfies(TWO_NORMS);
        let sequential = model.has_tensor("blk.0.ffn_norm.weight");
        let grouped = two || (groups > 1 && groups < model.heads(None)?);
        config.set("vocab_size", model.vocabulary()?);
        config.set("hidden_size", model.needed(&keys::HIDDEN_SIZE)?);
        config.set("num_hidden_layers", model.needed(&keys::LAYERS)?);
        config.set("num_attention_heads", model.heads(None)?);
        config.set("num_kv_heads", groups);
        config.set("ffn_hidden_size", model.needed(&keys::FEED_FORWARD)?);
        config.set("new_decoder_architecture", grouped);
        if grouped {
            config.set("num_ln_in_parallel_attn", if two { 2 } else { 1 });
        }
        // without effect in the newer architecture, whose files say so all the same
        config.set("multi_query", groups == 1 || grouped);
        config.set("parallel_attn", !sequential);
        config.set("bias", model.has_tensor("blk.0.attn_qkv.bias"));
        // llama.cpp computes Falcon with rotated positions only
        config.set("alibi", false);
        config.layer_norm(model, "layer_norm_epsilon")?;
        config.set_some("max_position_embeddings", model.number(&keys::CONTEXT_MAX));
        // the default of transformers
        config.set(
            "rope_theta",
            model.float("rope.freq_base").unwrap_or(10_000.0),
        );
        config.set("tie_word_embeddings", !model.has_tensor("output.weight"));
        Ok(config)
    },
    writing: Some(&FALCON_WRITING),
};

static FALCON_WRITING: GgufWriting = GgufWriting {
    classes: &["FalconForCausalLM", "RWForCausalLM"],
    prefix: "transformer.",
    keys: |model, keys| {
        // no configuration states it
        keys.field(&keys::CONTEXT_MAX, Some(2048))?;
        // the order of queries, keys and values
        keys.text("tensor_data_layout", "jploski");
        four_times_wide(model, keys)?;
        keys.field(&keys::LAYERS, Some(model.needed(&keys::LAYERS)?))?;
        keys.field(&keys::HEADS, Some(model.heads()?))?;
        keys.field(&keys::KV_HEADS, Some(falcon_groups(model)))?;
        let epsilon = model.required_float(&["layer_norm_epsilon"])?;
        keys.float("attention.layer_norm_epsilon", epsilon)?;
        keys.file_type();
        Ok(())
    },
    ..GgufWriting::DECODER
};

/// Heads of keys and values: one where none are stated.
fn falcon_groups(model: &SourceModel<'_>) -> u64 {
    let stated = model.config.number(&keys::KV_HEADS);
    stated.filter(|groups| *groups > 0).unwrap_or(1)
}

/// Architectures with fused queries, keys and values.
pub(super) static GPT_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &["gpt2", "gpt_neox"],
        gguf: &["gpt2", "gptneox"],
        caches: CacheRules {
            attention: attention::all_heads,
            ..DECODER_CACHES
        },
        conversions: &[GPT2],
    },
    Architecture {
        model_types: &["falcon"],
        gguf: &["falcon"],
        caches: CacheRules {
            attention: falcon_cache,
            ..DECODER_CACHES
        },
        conversions: &[FALCON],
    },
    // no cache of BLOOM's was measured
    Architecture {
        model_types: &[],
        gguf: &[],
        caches: DECODER_CACHES,
        conversions: &[BLOOM],
    },
];

/// One head of keys and values with `multi_query`. With the newer architecture transformers keeps them expanded to all
/// heads.
fn falcon_cache(config: &ModelConfig, layer: CachedLayer) -> Result<LayerCache> {
    let all = attention::heads(config)?;
    let dim = attention::hidden(config)? / all.max(1);
    let heads = if config.truth(&keys::GROUPED_QUERIES) == Some(true) {
        if layer.expanded {
            all
        } else {
            attention::kv_heads(config)?
        }
    } else if config.truth(&keys::MULTI_QUERY) != Some(false) {
        1
    } else {
        all
    };
    Ok(LayerCache::Full(AttentionShape::new(heads, dim, dim)))
}
