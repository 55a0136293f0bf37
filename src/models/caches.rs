//! The caches of a model's layers: what each keeps, from the configuration.
//!
//! [`CacheRules`] are functions: one that gives each layer a kind, and others that make a cache of a kind. An architecture's
//! row takes the rules of [`DECODER_CACHES`] unless it differs. The facts are from transformers' configuration and cache
//! classes (`cache_utils.py`, `configuration_*.py`), and from llama.cpp's `llama-hparams` and `llama-model` for what a GGUF
//! does not state. Most are held to the bytes that transformers and llama.cpp allocated (`fixtures/fit`).

pub(in crate::models) mod attention;
mod gguf;
mod groups;
pub(in crate::models) mod kinds;
mod shape;
pub(in crate::models) mod states;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::models::config::{MAX_LAYERS, ModelConfig, keys};

pub use groups::LayerGroup;
pub use shape::{AttentionShape, LayerCache, StateShape};

pub(in crate::models) use gguf::{GgufFacts, Windows};
pub(crate) use groups::grouped;

pub(in crate::models) use kinds::{CachedLayer, LayerKind, LayerKinds};

use attention::standard;

/// The rules that decide the caches of an architecture's layers.
#[derive(Debug)]
pub(in crate::models) struct CacheRules {
    /// The kind of each layer, where the configuration has no list of them.
    pub(in crate::models) kinds: fn(&ModelConfig, usize) -> Result<LayerKinds>,
    /// Keys and values of a layer with attention.
    pub(in crate::models) attention: fn(&ModelConfig, CachedLayer) -> Result<LayerCache>,
    /// The state of a recurrent layer.
    pub(in crate::models) state: fn(&ModelConfig) -> Result<LayerCache>,
    /// Outputs of the encoder that each layer attends to as well.
    pub(in crate::models) cross: Option<fn(&ModelConfig) -> Result<LayerCache>>,
    /// Number of layers.
    pub(in crate::models) layers: fn(&ModelConfig) -> Option<u64>,
    /// Attentions of a layer, each with a cache of its own.
    pub(in crate::models) attentions: u32,
    /// For a GGUF, whose keys are the same in every architecture.
    pub(in crate::models) gguf: GgufFacts,
    /// Whether the last layers read the cache of others, if the configuration has a number of such layers.
    pub(in crate::models) shares: bool,
}

/// A decoder without states, whose layers have attention to all tokens.
pub(in crate::models) const DECODER_CACHES: CacheRules = CacheRules {
    kinds: kinds::full,
    attention: standard,
    state: states::none,
    cross: None,
    layers: ModelConfig::layers,
    attentions: 1,
    gguf: GgufFacts::NONE,
    shares: false,
};

/// One layer's cache, and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedCache {
    /// The number of the layer.
    pub(crate) number: u32,
    pub(crate) cache: LayerCache,
    /// The key that decided, or a remark in its place.
    pub(crate) why: &'static str,
}

/// The layers of a configuration.
#[derive(Debug, Default)]
pub(crate) struct ModelLayers {
    /// One entry per layer; a layer with an attention and a state has two.
    pub(crate) caches: Vec<NumberedCache>,
    /// Number of layers.
    pub(crate) layers: u64,
    /// Caches with numbers of their own per layer.
    pub(crate) attentions: u32,
    pub(crate) notes: Vec<String>,
}

/// The layers that a configuration describes, by the rules of its architecture. `expanded`: whether the engine keeps heads of
/// keys and values as it computes with them.
///
/// # Errors
/// A configuration without a value that its rules need.
pub(in crate::models) fn layers(
    config: &ModelConfig,
    rules: &CacheRules,
    expanded: bool,
    budget: &Budget,
) -> Result<ModelLayers> {
    if config.is_gguf() {
        return gguf::layers(config, &rules.gguf, budget);
    }
    let layers = bounded_layers(config, (rules.layers)(config), budget)?;
    let n = layers * rules.attentions as usize;
    // a list of the file before the architecture's pattern: it was written for this model
    let (mut kinds, mut why) = match kinds::listed(config, n)? {
        Some(kinds) => kinds,
        None => (rules.kinds)(config, n)?,
    };
    if rules.shares {
        let shared = config.number(&keys::SHARING_LAYERS).unwrap_or(0);
        let first = n.saturating_sub(usize::try_from(shared).unwrap_or(n));
        // after the list, which names the kind of their attention
        kinds[first..].fill(LayerKind::Shared);
    }
    if config.sliding_window().is_none() && kinds.contains(&LayerKind::Window) {
        let is_null = config.is_null(&keys::SLIDING_WINDOW);
        // layers with a window need its width; null or a switch says on purpose that there is none
        if !is_null && config.truth(&keys::USES_WINDOW) != Some(false) {
            return Err(config.missing(&keys::SLIDING_WINDOW));
        }
        for kind in kinds.iter_mut().filter(|kind| **kind == LayerKind::Window) {
            *kind = LayerKind::Full;
        }
        // shown in place of the key: the list alone would say that there are windows
        why = "the window is null";
    }
    let mut caches = Vec::new();
    // layers of one kind have one cache, unless their numbers decide: a model of 60,000 layers is 60,000 rows of numbers
    for (number, kind) in (0u32..).zip(&kinds) {
        let layer = CachedLayer {
            kind: *kind,
            number: number as usize,
            expanded,
        };
        let mut push = |cache| caches.push(NumberedCache { number, cache, why });
        match kind {
            LayerKind::Linear => push((rules.state)(config)?),
            LayerKind::Both => {
                push((rules.attention)(config, layer.of_kind(LayerKind::Full))?);
                push((rules.state)(config)?);
            }
            LayerKind::Shared => push(LayerCache::Shared),
            LayerKind::Nothing => push(LayerCache::None),
            _ => push((rules.attention)(config, layer)?),
        }
        if let Some(cross) = rules.cross {
            push(cross(config)?);
        }
    }
    Ok(ModelLayers {
        caches,
        layers: layers as u64,
        attentions: rules.attentions,
        notes: Vec::new(),
    })
}

/// An upper bound for an architecture that is not known: attention to all tokens in all layers.
pub(crate) fn bound(config: &ModelConfig, budget: &Budget) -> Result<ModelLayers> {
    if config.is_gguf() {
        return gguf::layers(config, &DECODER_CACHES.gguf, budget);
    }
    let n = bounded_layers(config, config.layers(), budget)?;
    let first = CachedLayer {
        kind: LayerKind::Full,
        number: 0,
        // the larger of the two forms, since a bound must not be too small
        expanded: true,
    };
    let cache = standard(config, first)?;
    let caches = (0u32..).take(n).map(|number| NumberedCache {
        number,
        cache,
        why: "bound",
    });
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
    // the number is the file's
    budget.memory(layers * LAYER, "the layers")?;
    Ok(bounded)
}
