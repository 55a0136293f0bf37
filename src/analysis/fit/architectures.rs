//! What each architecture keeps per layer: one row each.
//!
//! A row is names, a function that gives each layer a kind, and functions that make a cache of a kind. The facts are those
//! of transformers' configuration and cache classes (`cache_utils.py`, `configuration_*.py`), and of llama.cpp's
//! `llama-hparams` and `llama-model` for what a GGUF does not state. Most rows are held to the bytes that transformers and
//! llama.cpp allocated (`fixtures/fit`).

mod attention;
mod gguf;
mod patterns;
mod states;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::models::config::{MAX_LAYERS, ModelConfig, keys};

use super::engine::InferenceEngine;
use super::layer::LayerCache;

use attention::standard;
use patterns::{LayerKind, LayerKinds};

/// What decides the caches of an architecture's layers, from `config.json`.
pub(super) struct ArchitectureRow {
    /// Values of `model_type`, of the language model where several are nested.
    model_types: &'static [&'static str],
    /// Values of `general.architecture` in a GGUF.
    gguf: &'static [&'static str],
    /// The kind of each layer, where the configuration has no list of them.
    kinds: fn(&ModelConfig, usize) -> Result<LayerKinds>,
    /// Keys and values of a layer with attention.
    attention: fn(&ModelConfig, LayerKind, usize, InferenceEngine) -> Result<LayerCache>,
    /// The state of a recurrent layer.
    state: fn(&ModelConfig) -> Result<LayerCache>,
    /// Outputs of the encoder that each layer attends to as well.
    cross: Option<fn(&ModelConfig) -> Result<LayerCache>>,
    /// Number of layers.
    layers: fn(&ModelConfig) -> Option<u64>,
    /// Attentions of a layer, each with a cache of its own.
    attentions: u32,
    /// Which layers of a GGUF have a window, where it does not say.
    gguf_windows: gguf::Windows,
    /// Whether the last `num_kv_shared_layers` layers read the cache of others.
    shares: bool,
}

/// A row of a decoder without states, whose layers have attention to all tokens.
const DECODER: ArchitectureRow = ArchitectureRow {
    model_types: &[],
    gguf: &[],
    kinds: patterns::full,
    attention: standard,
    state: states::none,
    cross: None,
    layers: ModelConfig::layers,
    attentions: 1,
    gguf_windows: gguf::Windows::No,
    shares: false,
};

/// All architectures.
static ARCHITECTURES: &[ArchitectureRow] = &[
    ArchitectureRow {
        model_types: &[
            "llama",
            "qwen3",
            "qwen3_moe",
            "glm",
            "glm4",
            "glm4_moe",
            "cohere",
            "granite",
            "granitemoe",
            "smollm3",
            "seed_oss",
            "minimax_m2",
            "ernie4_5",
            "ernie4_5_moe",
            "olmo",
            "olmo2",
            "olmoe",
            "gemma",
            "stablelm",
            "qwen3_vl_text",
            "qwen3_vl_moe_text",
        ],
        gguf: &[
            "llama",
            "qwen2",
            "qwen2moe",
            "qwen3",
            "qwen3moe",
            "glm4",
            "glm4moe",
            "command-r",
            "granite",
            "granitemoe",
            "smollm3",
            "seed_oss",
            "minimax-m2",
            "phimoe",
            "phi3",
            "ernie4_5",
            "ernie4_5-moe",
            "gpt2",
            "gptneox",
            "falcon",
            "starcoder2",
            "gemma",
            "stablelm",
            "olmoe",
            "qwen2vl",
            "qwen3vl",
            "qwen3vlmoe",
            "mistral3",
            "minicpm3",
        ],
        kinds: patterns::windows_if_listed,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gpt2", "gpt_neox"],
        attention: attention::all_heads,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["falcon"],
        attention: attention::falcon,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &[
            "mistral",
            "starcoder2",
            "phi3",
            "phimoe",
            "mixtral",
            "ministral",
            "ministral3",
            "mistral3_text",
        ],
        kinds: patterns::all_windows,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &[
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
        ],
        kinds: patterns::windows_after,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gemma2"],
        gguf: &["gemma2"],
        kinds: |config, n| patterns::every(config, n, 2, LayerKind::Window),
        gguf_windows: gguf::Windows::Every(2),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gemma3_text"],
        gguf: &["gemma3"],
        kinds: |config, n| patterns::every(config, n, 6, LayerKind::Window),
        attention: attention::gemma3,
        gguf_windows: gguf::Windows::Every(6),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gemma3n_text"],
        gguf: &["gemma3n"],
        kinds: |config, n| patterns::every(config, n, 5, LayerKind::Window),
        gguf_windows: gguf::Windows::Every(5),
        shares: true,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gemma4_text"],
        gguf: &["gemma4"],
        kinds: patterns::gemma4,
        attention: attention::gemma4,
        shares: true,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["gpt_oss"],
        gguf: &["gpt-oss"],
        kinds: |config, n| patterns::every(config, n, 2, LayerKind::Window),
        gguf_windows: gguf::Windows::Every(2),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["cohere2", "olmo3", "exaone4"],
        gguf: &["cohere2", "olmo2", "exaone4"],
        kinds: |config, n| patterns::every(config, n, 4, LayerKind::Window),
        gguf_windows: gguf::Windows::Every(4),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["llama4_text"],
        gguf: &["llama4"],
        kinds: patterns::llama4,
        gguf_windows: gguf::Windows::Chunks(4),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["mimo_v2_flash"],
        gguf: &["mimo2"],
        kinds: patterns::mimo,
        attention: attention::mimo,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &[
            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "minicpm3",
            "glm4_moe_lite",
        ],
        gguf: &["deepseek2"],
        attention: attention::latent,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["longcat_flash"],
        attention: attention::latent,
        layers: |config| {
            config
                .number(&keys::STACK_LAYERS)
                .or_else(|| config.layers())
        },
        attentions: 2,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["deepseek_v32", "glm_moe_dsa"],
        attention: attention::indexed,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["kimi_linear"],
        gguf: &["kimi-linear"],
        kinds: patterns::kimi,
        attention: attention::latent,
        state: states::kimi,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &[
            "qwen3_next",
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "olmo_hybrid",
        ],
        gguf: &["qwen3next", "qwen35", "qwen35moe"],
        kinds: |config, n| {
            let interval = config.number(&keys::ATTENTION_INTERVAL).unwrap_or(4);
            patterns::every(config, n, interval, LayerKind::Linear)
        },
        state: states::gated_delta,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["mamba", "falcon_mamba"],
        gguf: &["mamba"],
        kinds: patterns::linear,
        state: states::mamba,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["mamba2"],
        gguf: &["mamba2"],
        kinds: patterns::linear,
        state: states::mamba2,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["jamba"],
        gguf: &["jamba"],
        kinds: patterns::jamba,
        state: states::jamba,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["bamba"],
        kinds: |config, n| patterns::listed_numbers(config, n, &keys::ATTENTION_INDICES, 0),
        state: states::mamba2,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["granitemoehybrid"],
        gguf: &["granitehybrid"],
        kinds: patterns::must_be_listed,
        state: states::mamba2,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["nemotron_h"],
        gguf: &["nemotron_h", "nemotron_h_moe"],
        kinds: patterns::nemotron,
        state: states::mamba2,
        layers: patterns::nemotron_layers,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["falcon_h1"],
        gguf: &["falcon-h1"],
        kinds: patterns::both,
        state: states::mamba2,
        gguf_windows: gguf::Windows::Both,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["zamba2"],
        kinds: patterns::must_be_listed,
        attention: attention::zamba2,
        state: states::mamba2,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["minimax"],
        kinds: patterns::minimax,
        state: states::lightning,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["lfm2", "lfm2_moe"],
        gguf: &["lfm2", "lfm2moe"],
        kinds: patterns::lfm2,
        state: states::short_conv,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["recurrent_gemma"],
        kinds: patterns::recurrent_gemma,
        attention: attention::recurrent_gemma,
        state: states::recurrent_gemma,
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["t5", "mt5"],
        attention: attention::t5,
        cross: Some(attention::t5_cross),
        layers: |config| {
            let own = config.number(&keys::DECODER_LAYERS);
            own.or_else(|| config.number(&keys::STACK_LAYERS))
        },
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["bart", "mbart", "whisper"],
        attention: attention::bart,
        cross: Some(attention::bart_cross),
        layers: |config| config.number(&keys::DECODER_LAYERS),
        ..DECODER
    },
    ArchitectureRow {
        model_types: &["mllama_text_model"],
        kinds: patterns::mllama,
        ..DECODER
    },
];

/// One layer's cache, by the layer's number, and what decided it.
pub(super) type NumberedCache = (u32, LayerCache, &'static str);

/// The layers of a configuration.
#[derive(Default)]
pub(super) struct ModelLayers {
    /// What each layer keeps; a layer with an attention and a state is here twice.
    pub(super) caches: Vec<NumberedCache>,
    /// Number of layers.
    pub(super) layers: u64,
    /// Caches with numbers of their own per layer.
    pub(super) attentions: u32,
    pub(super) notes: Vec<String>,
}

/// The row of a configuration.
pub(super) fn row(config: &ModelConfig) -> Option<&'static ArchitectureRow> {
    let name = config.model_type()?;
    ARCHITECTURES.iter().find(|row| {
        let names = if config.is_gguf() {
            row.gguf
        } else {
            row.model_types
        };
        names.contains(&name)
    })
}

/// The layers that a configuration describes.
///
/// # Errors
/// An architecture that is in no row, or a configuration without a value that its row needs.
pub(super) fn layers(
    config: &ModelConfig,
    engine: InferenceEngine,
    budget: &Budget,
) -> Result<ModelLayers> {
    let Some(row) = row(config) else {
        return Err(match config.model_type() {
            Some(name) => Error::unsupported(format!(
                "the architecture {} is not known",
                crate::base::quote::quote(name)
            )),
            None => Error::unsupported("the configuration names no architecture"),
        });
    };
    if config.is_gguf() {
        return gguf::layers(config, row, budget);
    }
    let layers = bounded_layers(config, (row.layers)(config), budget)?;
    let n = layers * row.attentions as usize;
    let (mut kinds, mut why) = match patterns::listed(config, n)? {
        Some(kinds) => kinds,
        None => (row.kinds)(config, n)?,
    };
    if row.shares {
        let shared = config.number(&keys::SHARING_LAYERS).unwrap_or(0);
        let first = n.saturating_sub(usize::try_from(shared).unwrap_or(n));
        kinds[first..].fill(LayerKind::Shared);
    }
    if config.sliding_window().is_none() && kinds.contains(&LayerKind::Window) {
        let is_null = config.is_null(&keys::SLIDING_WINDOW);
        if !is_null && config.truth(&keys::USES_WINDOW) != Some(false) {
            return Err(config.missing(&keys::SLIDING_WINDOW));
        }
        for kind in kinds.iter_mut().filter(|kind| **kind == LayerKind::Window) {
            *kind = LayerKind::Full;
        }
        why = "the window is null";
    }
    let mut caches = Vec::new();
    // layers of one kind have one cache, unless their numbers decide: a model of 60,000 layers is 60,000 rows of numbers
    for (number, kind) in (0u32..).zip(&kinds) {
        let index = number as usize;
        let mut push = |cache| caches.push((number, cache, why));
        match kind {
            LayerKind::Linear => push((row.state)(config)?),
            LayerKind::Both => {
                push((row.attention)(config, LayerKind::Full, index, engine)?);
                push((row.state)(config)?);
            }
            LayerKind::Shared => push(LayerCache::Shared),
            LayerKind::Nothing => push(LayerCache::None),
            kind => push((row.attention)(config, *kind, index, engine)?),
        }
        if let Some(cross) = row.cross {
            push(cross(config)?);
        }
    }
    Ok(ModelLayers {
        caches,
        layers: layers as u64,
        attentions: row.attentions,
        notes: Vec::new(),
    })
}

/// An upper bound for an architecture that is not known: attention to all tokens in all layers.
pub(super) fn bound(config: &ModelConfig, budget: &Budget) -> Result<ModelLayers> {
    if config.is_gguf() {
        return gguf::layers(config, &DECODER, budget);
    }
    let n = bounded_layers(config, config.layers(), budget)?;
    let cache = standard(config, LayerKind::Full, 0, InferenceEngine::Exact)?;
    let caches = (0u32..).take(n).map(|i| (i, cache, "bound"));
    Ok(ModelLayers {
        caches: caches.collect(),
        layers: n as u64,
        attentions: 1,
        notes: Vec::new(),
    })
}

/// Memory that a layer may take, in all lists that are made of it.
const LAYER: u64 = 1024;

/// A number of layers that lists can have, and charges them.
fn bounded_layers(config: &ModelConfig, layers: Option<u64>, budget: &Budget) -> Result<usize> {
    let layers = layers.ok_or_else(|| config.missing(&keys::LAYERS))?;
    let bounded = usize::try_from(layers)
        .ok()
        .filter(|_| layers <= MAX_LAYERS);
    let bounded = bounded.ok_or_else(|| {
        Error::malformed(format!(
            "the configuration has {layers} layers; at most {MAX_LAYERS} are possible"
        ))
    })?;
    budget.memory(layers * LAYER, "the layers")?;
    Ok(bounded)
}

#[cfg(test)]
mod tests {
    use super::ARCHITECTURES;

    #[test]
    fn an_architecture_has_one_row() {
        for gguf in [false, true] {
            let mut names: Vec<_> = ARCHITECTURES
                .iter()
                .flat_map(|row| if gguf { row.gguf } else { row.model_types })
                .collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
            assert!(all > 40, "{all}");
        }
    }
}
