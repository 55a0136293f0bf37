//! DeepSeek V2 and V3, which GGUF stores under one name, and the architectures with its latent attention.
//!
//! Sources: llama.cpp `conversion/deepseek.py` (`kv_b_proj` is divided, and its keys transposed), gguf-py
//! `tensor_mapping.py`.

use std::sync::Arc;

use serde_json::json;

use crate::base::error::{Error, Result};
use crate::models::caches::{
    CacheRules, CachedLayer, DECODER_CACHES, LayerCache, LayerKind, LayerKinds, StateShape, kinds,
    states,
};
use crate::models::config::{ModelConfig, keys, keys::ConfigField};
use crate::models::conversion::{
    ArchitectureKeys, Change, ChangedTensor, CheckpointConfig, GgufConversion, GgufWriting, Model,
    RowSource, SourceModel, StoredTensors, TensorRule, changed, same,
};

use crate::plan::decode::TransposedMatrices;
use crate::read::catalog::Shape;

use super::Architecture;
use super::llama::DECODER;
use super::qwen::EXPERTS;

static LATENT: &[TensorRule] = &[
    same(&["blk.{i}.attn_q_a"], "model.layers.{i}.self_attn.q_a_proj"),
    same(
        &["blk.{i}.attn_q_a_norm"],
        "model.layers.{i}.self_attn.q_a_layernorm",
    ),
    same(&["blk.{i}.attn_q_b"], "model.layers.{i}.self_attn.q_b_proj"),
    same(
        &["blk.{i}.attn_kv_a_mqa"],
        "model.layers.{i}.self_attn.kv_a_proj_with_mqa",
    ),
    same(
        &["blk.{i}.attn_kv_a_norm"],
        "model.layers.{i}.self_attn.kv_a_layernorm",
    ),
    // files before the division
    same(
        &["blk.{i}.attn_kv_b"],
        "model.layers.{i}.self_attn.kv_b_proj",
    )
    .older(),
    changed(
        &["blk.{i}.attn_k_b", "blk.{i}.attn_v_b"],
        "model.layers.{i}.self_attn.kv_b_proj",
        KEYS_AND_VALUES,
    ),
    same(
        &["blk.{i}.exp_probs_b.bias"],
        "model.layers.{i}.mlp.gate.e_score_correction_bias",
    ),
    same(
        &["blk.{i}.ffn_gate_shexp"],
        "model.layers.{i}.mlp.shared_experts.gate_proj",
    ),
    same(
        &["blk.{i}.ffn_up_shexp"],
        "model.layers.{i}.mlp.shared_experts.up_proj",
    ),
    same(
        &["blk.{i}.ffn_down_shexp"],
        "model.layers.{i}.mlp.shared_experts.down_proj",
    ),
];

const KEYS_AND_VALUES: Change = Change {
    to_hf: keys_and_values,
    to_gguf: divided,
};

/// The keys of each head, transposed, and the values.
fn divided(model: &SourceModel<'_>, stored: &StoredTensors<'_>) -> Result<Vec<ChangedTensor>> {
    let heads = model.heads()?;
    let keys = model.required(&["qk_nope_head_dim"])?;
    let values = model.required(&[keys::VALUE_HEAD_DIM.key(false)])?;
    let (rows, rank) = stored.matrix(0)?;
    let both = keys
        .checked_add(values)
        .filter(|both| both.checked_mul(heads) == Some(rows) && keys > 0 && values > 0);
    let both = both.ok_or_else(|| stored.wrong(0))?;
    let of_keys = stored.strided(
        stored.source(0)?,
        (0, keys, both),
        rank,
        &[heads, keys, rank],
    )?;
    let transposed = TransposedMatrices {
        inner: of_keys.decoder,
        matrices: heads,
        rows: keys,
        cols: rank,
    };
    let of_keys = ChangedTensor {
        shape: Shape::from_slice(&[heads, rank, keys]),
        decoder: Arc::new(transposed),
    };
    let of_values = stored.strided(
        stored.source(0)?,
        (keys, values, both),
        rank,
        &[heads, values, rank],
    )?;
    Ok(vec![of_keys, of_values])
}

/// For each head the rows of its keys, stored `[heads, rank, keys]`, and of its values, stored `[heads, values, rank]`.
fn keys_and_values(_: &Model<'_>, stored: &StoredTensors<'_>) -> Result<ChangedTensor> {
    let (&[heads, rank, keys], &[other_heads, values, other_rank]) =
        (stored.shape(0), stored.shape(1))
    else {
        return Err(stored.wrong(0));
    };
    let rows = keys
        .checked_add(values)
        .and_then(|rows| rows.checked_mul(heads));
    let (Some(rows), true) = (rows, heads == other_heads && rank == other_rank) else {
        return Err(stored.wrong(1));
    };
    let transposed = RowSource {
        decoder: stored.transposed(0)?.decoder,
        first_part: 0,
    };
    let sources = vec![transposed, stored.source(1)?];
    stored.interleaved(sources, vec![keys, values], heads, rank, &[rows, rank])
}

/// `general.architecture` = `deepseek2`.
const DEEPSEEK2: GgufConversion = GgufConversion {
    name: "deepseek2",
    tensors: &[LATENT, EXPERTS, DECODER],
    omitted: &[],
    config: deepseek,
    writing: Some(&DEEPSEEK2_WRITING),
};

static DEEPSEEK2_WRITING: GgufWriting = GgufWriting {
    classes: &["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"],
    drops_further_layers: true,
    keys: deepseek_keys,
    check: |model| {
        // the models that llama.cpp reads without the rank, by their layers
        let is_lite = matches!(model.config.layers(), Some(26 | 27));
        match is_lite || model.number(&["q_lora_rank"]).is_some() {
            true => Ok(()),
            false => Err(Error::unsupported(
                "the configuration has no q_lora_rank, without which llama.cpp reads models of this architecture with 26 and 27 layers only",
            )),
        }
    },
    ..GgufWriting::DECODER
};

/// Latent attention, which llama.cpp computes with one head of keys.
fn deepseek_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let config = model.config;
    let (rank, rotated) = (
        config.number(&keys::LATENT_RANK).unwrap_or(512),
        model.needed(&keys::ROTATED_DIM)?,
    );
    let sum = |a: u64, b: u64| Some(a.saturating_add(b));
    // the class calls the rotated part a head, which is replaced below
    keys.language_model_with(model, Some(rotated), Some(1))?;
    let experts = config.number(&keys::EXPERTS);
    let dense = model.number(&["first_k_dense_replace"]);
    let dense = match (dense, experts) {
        (Some(dense), _) => dense,
        (None, Some(_)) => 0,
        (None, None) => model.needed(&keys::LAYERS)?,
    };
    keys.number("leading_dense_block_count", dense)?;
    keys.field(&keys::VOCABULARY, Some(model.needed(&keys::VOCABULARY)?))?;
    if let Some(rank) = model.number(&["q_lora_rank"]) {
        keys.number("attention.q_lora_rank", rank)?;
    }
    keys.field(&keys::LATENT_RANK, Some(rank))?;
    keys.field(&keys::HEAD_DIM, sum(rank, rotated))?;
    keys.field(&keys::VALUE_HEAD_DIM, Some(rank))?;
    let plain = model.required(&["qk_nope_head_dim"])?;
    keys.field(&keys::LATENT_HEAD_DIM, sum(plain, rotated))?;
    let values = model.needed(&keys::VALUE_HEAD_DIM)?;
    keys.field(&keys::LATENT_VALUE_HEAD_DIM, Some(values))?;
    let length = config.number(&keys::EXPERT_FEED_FORWARD);
    let length = length.map_or_else(|| model.needed(&keys::FEED_FORWARD), Ok)?;
    keys.field(&keys::EXPERT_FEED_FORWARD, Some(length))?;
    keys.field(&keys::EXPERTS, experts)?;
    let shared = model.number(&["n_shared_experts"]).unwrap_or(0);
    keys.number("expert_shared_count", shared)?;
    if let Some(scale) = model.float(&["routed_scaling_factor"]) {
        keys.float("expert_weights_scale", scale)?;
    }
    if model.value(&["norm_topk_prob"]) == Some(&json!(true)) {
        keys.flag("expert_weights_norm", true);
    }
    keys.field(&keys::ROTATED_DIM, Some(rotated))?;
    let rotation = model.rotation();
    if let Some(scale) = rotation
        .get("mscale_all_dim")
        .and_then(serde_json::Value::as_f64)
    {
        // the converter stores a tenth, as the reading of this key says
        keys.float("rope.scaling.yarn_log_multiplier", 0.1 * scale)?;
    }
    Ok(())
}

fn deepseek(model: &Model<'_>) -> Result<CheckpointConfig> {
    // V3's router has sigmoids and a bias, V2's a softmax; older files do not name the function
    let dense = model.integer("leading_dense_block_count").unwrap_or(0);
    let third = model.integer("expert_gating_func") == Some(2)
        || model.has_tensor(&format!("blk.{dense}.exp_probs_b.bias"));
    let (class, model_type) = if third {
        ("DeepseekV3ForCausalLM", "deepseek_v3")
    } else {
        ("DeepseekV2ForCausalLM", "deepseek_v2")
    };
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    let (heads, rotary) = (model.heads(None)?, model.needed(&keys::ROTATED_DIM)?);
    // the file describes attention to the latent vectors, which has one head of keys
    config.set("num_key_value_heads", heads);
    config.set("head_dim", rotary);
    let of = |latent: &'static ConfigField, plain: &'static ConfigField| {
        let stated = model.number(latent);
        stated.map_or_else(|| model.needed(plain), Ok)
    };
    let keys = of(&keys::LATENT_HEAD_DIM, &keys::HEAD_DIM)?;
    let values = of(&keys::LATENT_VALUE_HEAD_DIM, &keys::VALUE_HEAD_DIM)?;
    config.set("qk_rope_head_dim", rotary);
    // GGUF counts the rotated part among the keys
    config.set("qk_nope_head_dim", keys.saturating_sub(rotary));
    config.set("v_head_dim", values);
    config.set("kv_lora_rank", model.needed(&keys::LATENT_RANK)?);
    // null where queries have no latent vectors: the classes have a rank by default
    let rank = model.integer("attention.q_lora_rank");
    config.set("q_lora_rank", rank);
    config.set("hidden_act", "silu");
    config.rms_norm(model)?;
    config.rotary(model)?;
    if let Some(scaling) = config.rope_scaling()
        && let Some(multiplier) = model.float("rope.scaling.yarn_log_multiplier")
    {
        // the converter stores a tenth of `mscale_all_dim`, to which `mscale` is equal in the published models
        let scale = (multiplier * 1e4).round() / 1e3;
        scaling.insert("mscale".into(), scale.into());
        scaling.insert("mscale_all_dim".into(), scale.into());
    }
    config.set("n_routed_experts", model.needed(&keys::EXPERTS)?);
    config.set("num_experts_per_tok", model.needed(&keys::EXPERTS_USED)?);
    config.set(
        "moe_intermediate_size",
        model.needed(&keys::EXPERT_FEED_FORWARD)?,
    );
    config.set_some("n_shared_experts", model.integer("expert_shared_count"));
    config.set("first_k_dense_replace", dense);
    let scale = model.float("expert_weights_scale").unwrap_or(1.0);
    config.set("routed_scaling_factor", scale);
    let norm = model.flag("expert_weights_norm").unwrap_or(false);
    config.set("norm_topk_prob", norm);
    // older files have no groups: eight of V3, and one of the small V2, are the numbers of the published models
    let (groups, used) = match (third, model.integer("expert_group_count")) {
        (_, Some(groups)) => (
            groups,
            model.integer("expert_group_used_count").unwrap_or(groups),
        ),
        (true, None) => (8, 4),
        (false, None) if model.number(&keys::EXPERTS) == Some(160) => (8, 3),
        (false, None) => (1, 1),
    };
    config.set("n_group", groups);
    config.set("topk_group", used);
    if third {
        config.set("scoring_func", "sigmoid");
        config.set("topk_method", "noaux_tc");
    } else {
        let method = if groups > 1 {
            "group_limited_greedy"
        } else {
            "greedy"
        };
        config.set("topk_method", method);
    }
    config.set("moe_layer_freq", json!(1));
    config.set("attention_bias", false);
    Ok(config)
}

/// Architectures with multi-head latent attention.
pub(super) static DEEPSEEK_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &[
            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "minicpm3",
            "glm4_moe_lite",
        ],
        gguf: &["deepseek2", "minicpm3"],
        caches: CacheRules {
            attention: latent,
            ..DECODER_CACHES
        },
        conversions: &[DEEPSEEK2],
    },
    Architecture {
        model_types: &["longcat_flash"],
        gguf: &[],
        caches: CacheRules {
            attention: latent,
            layers: |config| {
                config
                    .number(&keys::STACK_LAYERS)
                    .or_else(|| config.layers())
            },
            // each layer of LongCat has two attentions and two feed-forward networks
            attentions: 2,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["deepseek_v32", "glm_moe_dsa"],
        gguf: &[],
        caches: CacheRules {
            attention: indexed,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["kimi_linear"],
        gguf: &["kimi-linear"],
        caches: CacheRules {
            kinds: kimi_kinds,
            attention: latent,
            state: kimi_state,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// Multi-head latent attention.
fn latent(config: &ModelConfig, _: CachedLayer) -> Result<LayerCache> {
    Ok(LayerCache::Latent {
        rank: config.required(&keys::LATENT_RANK)?,
        rope: config.required(&keys::ROTATED_DIM)?,
        index: 0,
    })
}

/// Latent attention, with keys of an indexer that selects tokens.
fn indexed(config: &ModelConfig, _: CachedLayer) -> Result<LayerCache> {
    Ok(LayerCache::Latent {
        rank: config.required(&keys::LATENT_RANK)?,
        rope: config.required(&keys::ROTATED_DIM)?,
        index: config.required(&keys::INDEX_DIM)?,
    })
}

fn kimi_kinds(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.list(&keys::ATTENTION_NUMBERS).is_none() {
        // three layers of delta attention, then one of latent, as in the published model
        return kinds::every(config, n, 4, LayerKind::Linear);
    }
    kinds::listed_numbers(config, n, &keys::ATTENTION_NUMBERS, 1)
}

/// Kimi delta attention: a square state per head, and three convolutions.
fn kimi_state(config: &ModelConfig) -> Result<LayerCache> {
    let dim = config.required(&keys::LINEAR_HEAD_DIM)?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: config.required(&keys::LINEAR_HEADS)?,
        head_channels: states::product(3, dim)?,
        head_state: states::product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: config.required(&keys::LINEAR_KERNEL)?,
        model_dtype: false,
    }))
}
