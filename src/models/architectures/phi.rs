//! Phi 3, whose queries, keys and values are one tensor, as are its gate and up projections.
//!
//! Sources: llama.cpp `conversion/phi.py`, gguf-py `tensor_mapping.py`.

use serde_json::json;

use crate::base::error::{Error, Result};
use crate::models::caches::{CacheRules, DECODER_CACHES, kinds};
use crate::models::config::keys;
use crate::models::conversion::{
    ArchitectureKeys, CheckpointConfig, GgufConversion, GgufWriting, SourceModel, TensorRule, same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;
use super::llama::DECODER;

static FUSED: &[TensorRule] = &[
    same(&["blk.{i}.attn_qkv"], "model.layers.{i}.self_attn.qkv_proj"),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.gate_up_proj"),
];

/// `general.architecture` = `phi3`.
const PHI3: GgufConversion = GgufConversion {
    name: "phi3",
    tensors: &[FUSED, DECODER],
    // no tensors of transformers: `rope_scaling` of the configuration has their numbers
    omitted: &["rope_factors_long.weight", "rope_factors_short.weight"],
    config: |model| {
        let mut config = CheckpointConfig::decoder("Phi3ForCausalLM", "phi3", model)?;
        config.set("hidden_act", "silu");
        config.rms_norm(model)?;
        config.partial_rotary(model)?;
        config.set(
            "rope_theta",
            model.float("rope.freq_base").unwrap_or(10_000.0),
        );
        let original = model.integer("rope.scaling.original_context_length");
        config.set_some("original_max_position_embeddings", original);
        let long = model.floats("rope_factors_long.weight")?;
        let short = model.floats("rope_factors_short.weight")?;
        if let (Some(long), Some(short)) = (long, short) {
            config.set(
                "rope_scaling",
                json!({"type": "longrope", "long_factor": long, "short_factor": short}),
            );
        }
        // llama.cpp's converter writes 0 for none
        let window = model.number(&keys::SLIDING_WINDOW).filter(|n| *n > 0);
        config.set("sliding_window", window);
        Ok(config)
    },
    writing: Some(&PHI3_WRITING),
};

static PHI3_WRITING: GgufWriting = GgufWriting {
    classes: &["Phi3ForCausalLM"],
    keys: phi3_keys,
    tables: phi3_tables,
    tokenizer: TokenizerReading::Phi3,
    ..GgufWriting::DECODER
};

const ORIGINAL: &str = "original_max_position_embeddings";

fn phi3_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let rotation = model.full_rotation();
    keys.field(&keys::CONTEXT_MAX, Some(model.needed(&keys::CONTEXT_MAX)?))?;
    keys.number("rope.scaling.original_context_length", original(model)?)?;
    for field in [&keys::HIDDEN_SIZE, &keys::FEED_FORWARD, &keys::LAYERS] {
        keys.field(field, Some(model.needed(field)?))?;
    }
    keys.field(&keys::HEADS, Some(model.heads()?))?;
    keys.field(&keys::KV_HEADS, Some(model.needed(&keys::KV_HEADS)?))?;
    let epsilon = model.required_float(&["rms_norm_eps"])?;
    keys.float("attention.layer_norm_rms_epsilon", epsilon)?;
    keys.field(&keys::ROTATED_DIM, Some(rotated(model)?))?;
    let theta = rotation
        .get("rope_theta")
        .and_then(serde_json::Value::as_f64);
    let theta =
        theta.ok_or_else(|| Error::malformed("the configuration has no usable rope_theta"))?;
    keys.float("rope.freq_base", theta)?;
    keys.file_type();
    // 0 tells Phi 4, which has none, from the other models of this architecture
    let window = model.config.number(&keys::SLIDING_WINDOW).unwrap_or(0);
    keys.field(&keys::SLIDING_WINDOW, Some(window))?;
    if long_and_short(model)?.is_some() {
        let (longest, original) = (model.needed(&keys::CONTEXT_MAX)?, original(model)?);
        keys.float(
            "rope.scaling.attn_factor",
            attention_factor(model, longest, original)?,
        )?;
    }
    Ok(())
}

/// The context that the model was trained with first.
fn original(model: &SourceModel<'_>) -> Result<u64> {
    let stated = model
        .rotation()
        .get(ORIGINAL)
        .and_then(serde_json::Value::as_u64);
    stated.map_or_else(|| model.required(&[ORIGINAL]), Ok)
}

/// Elements of a head that are rotated.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)] // sizes of a model
fn rotated(model: &SourceModel<'_>) -> Result<u64> {
    let rotation = model.rotation();
    let part = rotation
        .get("partial_rotary_factor")
        .and_then(serde_json::Value::as_f64);
    let width = model.needed(&keys::HIDDEN_SIZE)?;
    Ok((part.unwrap_or(1.0) * width as f64) as u64 / model.heads()?)
}

/// The factor of attention in long contexts.
#[allow(clippy::cast_precision_loss)] // lengths of contexts
fn attention_factor(model: &SourceModel<'_>, longest: u64, original: u64) -> Result<f64> {
    let scale = longest as f64 / original as f64;
    let rotation = model.rotation();
    let kind = rotation
        .get("rope_type")
        .and_then(serde_json::Value::as_str);
    match kind.unwrap_or_default().to_ascii_lowercase().as_str() {
        _ if scale <= 1.0 => Ok(1.0),
        "su" | "longrope" => Ok((1.0 + scale.ln() / (original as f64).ln()).sqrt()),
        "yarn" => Ok(0.1 * scale.ln() + 1.0),
        other => Err(Error::unsupported(format!(
            "the scaling {other:?} of positions is not known for Phi 3"
        ))),
    }
}

/// The factors of frequencies in long and in short contexts, if there are any.
fn long_and_short(model: &SourceModel<'_>) -> Result<Option<(Vec<f32>, Vec<f32>)>> {
    let rotation = model.rotation();
    let list = |key: &str| {
        #[allow(clippy::cast_possible_truncation)] // as they are stored
        let numbers = |list: &Vec<serde_json::Value>| -> Option<Vec<f32>> {
            list.iter().map(|n| Some(n.as_f64()? as f32)).collect()
        };
        rotation
            .get(key)
            .and_then(serde_json::Value::as_array)
            .map(numbers)
    };
    let (Some(long), short) = (list("long_factor"), list("short_factor")) else {
        return Ok(None);
    };
    let half = usize::try_from(rotated(model)? / 2).unwrap_or(usize::MAX);
    match (long, short.flatten()) {
        (Some(long), Some(short)) if long.len() == half && short.len() == half => {
            Ok(Some((long, short)))
        }
        _ => Err(Error::malformed(format!(
            "long_factor and short_factor of the configuration are not {half} numbers each"
        ))),
    }
}

fn phi3_tables(model: &SourceModel<'_>) -> Result<Vec<(&'static str, Vec<f32>)>> {
    Ok(match long_and_short(model)? {
        Some((long, short)) => vec![
            ("rope_factors_long.weight", long),
            ("rope_factors_short.weight", short),
        ],
        None => Vec::new(),
    })
}

/// Architectures of Phi.
pub(super) static PHI_FAMILY: &[Architecture] = &[Architecture {
    model_types: &["phi3", "phimoe"],
    gguf: &["phi3", "phimoe"],
    caches: CacheRules {
        kinds: kinds::all_windows,
        ..DECODER_CACHES
    },
    conversions: &[PHI3],
}];
