//! Llama, Mistral and Mixtral, which GGUF stores under one name; Llama 4, and Llama with images.
//!
//! Sources: llama.cpp `conversion/llama.py` (`LlamaModel.permute`, `generate_extra_tensors`), gguf-py `tensor_mapping.py`;
//! transformers `LlamaTensorProcessor`.

use crate::base::error::Result;
use crate::models::caches::{
    CacheRules, DECODER_CACHES, GgufFacts, LayerKind, LayerKinds, Windows, kinds,
};
use crate::models::config::{ModelConfig, keys};
use crate::models::conversion::{
    ArchitectureKeys, CheckpointConfig, EXPERT, GgufConversion, GgufWriting, Model, Need,
    ROTARY_KEY, ROTARY_QUERY, SourceModel, TensorRule, changed, same,
};
use crate::models::tokenizer::TokenizerReading;

use super::Architecture;

/// Names of decoders with separate projections, gated feed-forward layers and two norms per layer.
pub(super) static DECODER: &[TensorRule] = &[
    same(&["token_embd"], "model.embed_tokens"),
    same(&["output_norm"], "model.norm"),
    same(&["output"], "lm_head"),
    same(&["blk.{i}.attn_norm"], "model.layers.{i}.input_layernorm"),
    same(&["blk.{i}.attn_q"], "model.layers.{i}.self_attn.q_proj"),
    same(&["blk.{i}.attn_k"], "model.layers.{i}.self_attn.k_proj"),
    same(&["blk.{i}.attn_v"], "model.layers.{i}.self_attn.v_proj"),
    same(
        &["blk.{i}.attn_output"],
        "model.layers.{i}.self_attn.o_proj",
    ),
    same(
        &["blk.{i}.attn_q_norm"],
        "model.layers.{i}.self_attn.q_norm",
    ),
    same(
        &["blk.{i}.attn_k_norm"],
        "model.layers.{i}.self_attn.k_norm",
    ),
    same(
        &["blk.{i}.ffn_norm"],
        "model.layers.{i}.post_attention_layernorm",
    ),
    same(&["blk.{i}.ffn_gate"], "model.layers.{i}.mlp.gate_proj"),
    same(&["blk.{i}.ffn_up"], "model.layers.{i}.mlp.up_proj"),
    same(&["blk.{i}.ffn_down"], "model.layers.{i}.mlp.down_proj"),
];

/// Queries and keys whose rows llama.cpp reorders.
pub(super) static ROTARY: &[TensorRule] = &[
    changed(
        &["blk.{i}.attn_q"],
        "model.layers.{i}.self_attn.q_proj",
        ROTARY_QUERY,
    ),
    changed(
        &["blk.{i}.attn_k"],
        "model.layers.{i}.self_attn.k_proj",
        ROTARY_KEY,
    ),
];

/// Mixtral's router and experts: stacked, or one by one in files of 2023.
static MIXTRAL: &[TensorRule] = &[
    same(
        &["blk.{i}.ffn_gate_inp"],
        "model.layers.{i}.block_sparse_moe.gate",
    ),
    changed(
        &["blk.{i}.ffn_gate_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w1",
        EXPERT,
    ),
    changed(
        &["blk.{i}.ffn_down_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w2",
        EXPERT,
    ),
    changed(
        &["blk.{i}.ffn_up_exps"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w3",
        EXPERT,
    ),
    same(
        &["blk.{i}.ffn_gate.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w1",
    )
    .older(),
    same(
        &["blk.{i}.ffn_down.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w2",
    )
    .older(),
    same(
        &["blk.{i}.ffn_up.{e}"],
        "model.layers.{i}.block_sparse_moe.experts.{e}.w3",
    )
    .older(),
];

/// `general.architecture` = `llama`.
const LLAMA: GgufConversion = GgufConversion {
    name: "llama",
    tensors: &[ROTARY, MIXTRAL, DECODER],
    // no tensor of transformers: `rope_scaling` of the configuration has its numbers
    omitted: &["rope_freqs.weight"],
    config: llama,
    writing: Some(&LLAMA_WRITING),
};

static LLAMA_WRITING: GgufWriting = GgufWriting {
    classes: &[
        "LlamaForCausalLM",
        "LLaMAForCausalLM",
        "LlamaModel",
        MISTRAL_CLASS,
        MIXTRAL_CLASS,
    ],
    keys: llama_keys,
    tables: |model| Ok(Vec::from_iter(frequency_factors(model)?)),
    tokenizer: TokenizerReading::Llama,
    ..GgufWriting::DECODER
};

const MISTRAL_CLASS: &str = "MistralForCausalLM";
const MIXTRAL_CLASS: &str = "MixtralForCausalLM";

/// The keys of Llama's class and of the classes that share its converter.
pub(super) fn llama_keys(model: &SourceModel<'_>, keys: &mut ArchitectureKeys) -> Result<()> {
    let head = model.head_size()?;
    // this class alone states no size that it computes
    let stated = match model.class {
        MIXTRAL_CLASS => model.config.number(&keys::HEAD_DIM),
        _ => Some(head),
    };
    // the default of Llama's class; the others state it
    let groups = match model.class {
        MIXTRAL_CLASS | MISTRAL_CLASS => model.needed(&keys::KV_HEADS)?,
        _ => model.key_value_heads()?,
    };
    keys.language_model_with(model, stated, Some(groups))?;
    keys.field(&keys::VOCABULARY, Some(model.needed(&keys::VOCABULARY)?))?;
    keys.field(&keys::ROTATED_DIM, Some(head))
}

/// Llama 3's factor of each frequency, which `rope_freqs.weight` holds.
///
/// Source: `generate_extra_tensors` of `conversion/llama.py`, which computes in F32.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // a head's elements, and numbers that are F32 there
fn frequency_factors(model: &SourceModel<'_>) -> Result<Option<(&'static str, Vec<f32>)>> {
    let rotation = model.full_rotation();
    let kind = rotation
        .get("rope_type")
        .and_then(serde_json::Value::as_str);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("llama3")) {
        return Ok(None);
    }
    let number = |key: &str, default: f64| {
        let stated = rotation.get(key).and_then(serde_json::Value::as_f64);
        stated.unwrap_or(default)
    };
    let base = number("rope_theta", 10_000.0) as f32;
    let factor = number("factor", 8.0) as f32;
    let (low, high) = (
        number("low_freq_factor", 1.0),
        number("high_freq_factor", 4.0),
    );
    let original = number("original_max_position_embeddings", 8192.0);
    let head = model.head_size()?;
    if head > MAX_HEAD {
        return Err(model.config.missing(&keys::HEAD_DIM));
    }
    let factors = (0..head.div_ceil(2)).map(|pair| {
        let frequency = 1.0 / base.powf((2 * pair) as f32 / head as f32);
        let wavelength = std::f64::consts::TAU as f32 / frequency;
        if wavelength < (original / high) as f32 {
            return 1.0;
        }
        if wavelength > (original / low) as f32 {
            return factor;
        }
        let smooth = (original as f32 / wavelength - low as f32) / (high - low) as f32;
        1.0 / ((1.0 - smooth) / factor + smooth)
    });
    Ok(Some(("rope_freqs.weight", factors.collect())))
}

/// More elements than a head of any model has.
const MAX_HEAD: u64 = 1 << 16;

fn llama(model: &Model<'_>) -> Result<CheckpointConfig> {
    // a dense model may state 0
    let experts = model.number(&keys::EXPERTS).filter(|n| *n > 0);
    // no key states biases: the first layer shows them
    let biased = model.satisfies(Need::Tensor("blk.0.attn_q.bias"));
    let (class, model_type) = match experts {
        // GGUF stores Mixtral as a llama with experts
        Some(_) => (MIXTRAL_CLASS, "mixtral"),
        // both classes have the same parameters; Llama's knows biases and Llama 3's frequencies
        None if model.general_name_contains("mistral") && !biased => (MISTRAL_CLASS, "mistral"),
        None => ("LlamaForCausalLM", "llama"),
    };
    let mut config = CheckpointConfig::decoder(class, model_type, model)?;
    config.set("hidden_act", "silu");
    config.rms_norm(model)?;
    config.rotary(model)?;
    if model_type == "llama" {
        config.set("attention_bias", biased);
        config.set("mlp_bias", model.has_tensor("blk.0.ffn_up.bias"));
    } else {
        // the class has a window by default, and llama.cpp computes this architecture without one
        config.set("sliding_window", serde_json::Value::Null);
    }
    if let Some(experts) = experts {
        config.set("num_local_experts", experts);
        config.set("num_experts_per_tok", model.needed(&keys::EXPERTS_USED)?);
    }
    Ok(config)
}

/// Architectures of Meta and Mistral.
pub(super) static LLAMA_FAMILY: &[Architecture] = &[
    Architecture {
        model_types: &["llama"],
        gguf: &["llama"],
        caches: CacheRules {
            kinds: kinds::windows_if_listed,
            ..DECODER_CACHES
        },
        conversions: &[LLAMA],
    },
    Architecture {
        model_types: &[
            "mistral",
            "mixtral",
            "ministral",
            "ministral3",
            "mistral3_text",
        ],
        gguf: &["mistral3"],
        caches: CacheRules {
            kinds: kinds::all_windows,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["llama4_text"],
        gguf: &["llama4"],
        caches: CacheRules {
            kinds: llama4,
            gguf: GgufFacts {
                windows: Windows::Chunks(4),
                ..GgufFacts::NONE
            },
            ..DECODER_CACHES
        },
        conversions: &[],
    },
    Architecture {
        model_types: &["mllama_text_model"],
        gguf: &[],
        caches: CacheRules {
            kinds: mllama,
            ..DECODER_CACHES
        },
        conversions: &[],
    },
];

/// Layers with rotated positions attend to chunks.
fn llama4(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    if config.number(&keys::CHUNK).is_none() {
        return kinds::full(config, n);
    }
    // despite its name, the list has 1 for layers with rotation
    if let Some(kinds) = kinds::flagged(config, n, &keys::ROTATED_LAYERS, 0, LayerKind::Chunk) {
        return Ok(kinds);
    }
    // the default of the class
    let interval = config.number(&keys::UNROTATED_INTERVAL).unwrap_or(4);
    kinds::every(config, n, interval, LayerKind::Chunk)
}

/// Layers of a list attend to the image alone.
fn mllama(config: &ModelConfig, n: usize) -> Result<LayerKinds> {
    let mut kinds = vec![LayerKind::Full; n];
    let field = &keys::CROSS_LAYERS;
    for number in config.list(field).unwrap_or_default() {
        let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
        let kind = at.and_then(|at| kinds.get_mut(at));
        *kind.ok_or_else(|| config.missing(field))? = LayerKind::Cross;
    }
    Ok((kinds, field.key(false)))
}
