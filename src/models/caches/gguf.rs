//! The layers of a GGUF, by the keys of llama.cpp's converters: one function for all architectures, since the keys are the
//! same. The facts that a file does not state are in the architecture's row.

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::ModelConfig;
use crate::models::config::keys::{self, ConfigField};

use super::shape::{AttentionShape, LayerCache, StateShape};
use super::{ModelLayers, NumberedCache, bounded_layers};

/// The facts of llama.cpp that a file does not state.
#[derive(Debug)]
pub(in crate::models) struct GgufFacts {
    pub(in crate::models) windows: Windows,
    /// The period of layers with attention among recurrent ones, in files that do not state it.
    pub(in crate::models) attention_interval: Option<u64>,
    /// Layers with a cache of their own, in files that do not state it; the others read theirs.
    pub(in crate::models) own_layers: Option<usize>,
    /// Whether a layer with a feed-forward network alone keeps nothing; otherwise a layer without heads is recurrent.
    pub(in crate::models) has_empty_layers: bool,
}

impl GgufFacts {
    /// The rules of an architecture without exceptions.
    pub(in crate::models) const NONE: Self = Self {
        windows: Windows::No,
        attention_interval: None,
        own_layers: None,
        has_empty_layers: false,
    };
}

/// Which layers have a window where the file does not say: llama.cpp's own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Windows {
    /// None of them: llama.cpp ignores a window that the file states.
    No,
    /// All but every n-th layer.
    Every(u64),
    /// All but every n-th layer, which attend to chunks.
    Chunks(u64),
    /// No windows; each layer has an attention and a state.
    Both,
}

/// Tokens of a chunk, which a file does not state: the number of all published models.
const CHUNK: u64 = 8192;

pub(super) fn layers(
    config: &ModelConfig,
    facts: &GgufFacts,
    budget: &Budget,
) -> Result<ModelLayers> {
    let n = bounded_layers(config, config.layers(), budget)?;
    let mut notes = Vec::new();
    let keys = LayerKeys::new(config, facts, n)?;
    if keys.ignored_window {
        notes.push(
            "the file states a window, which llama.cpp does not use for this architecture"
                .to_owned(),
        );
    }
    let predicted = config.number(&keys::PREDICTING_LAYERS).unwrap_or(0);
    // a GGUF counts them among its layers
    let own = n.saturating_sub(usize::try_from(predicted).unwrap_or(n));
    if own < n {
        notes.push(format!(
            "{} of {n} layers predict further tokens and keep a cache only where they are used",
            n - own
        ));
    }
    let mut caches: Vec<NumberedCache> = Vec::new();
    for (number, i) in (0u32..).zip(0..n) {
        if i >= own {
            caches.push(NumberedCache {
                number,
                cache: LayerCache::None,
                why: keys::PREDICTING_LAYERS.key(true),
            });
            continue;
        }
        keys.layer(i, &mut |cache, why| {
            caches.push(NumberedCache { number, cache, why })
        })?;
    }
    Ok(ModelLayers {
        caches,
        layers: n as u64,
        attentions: 1,
        notes,
    })
}

/// The values that decide each layer, read once.
struct LayerKeys<'c> {
    config: &'c ModelConfig,
    facts: &'c GgufFacts,
    kv_heads: Vec<u64>,
    k_dim: u64,
    v_dim: u64,
    feed_forward: Option<Vec<u64>>,
    /// Per layer, whether it has a window.
    windows: Vec<bool>,
    window: Option<u64>,
    window_why: &'static str,
    ignored_window: bool,
    /// Layers from this one on read the cache of others.
    shared_from: usize,
    state: Option<LayerCache>,
    interval: Option<u64>,
}

impl<'c> LayerKeys<'c> {
    fn new(config: &'c ModelConfig, facts: &'c GgufFacts, n: usize) -> Result<Self> {
        let heads = config
            .per_layer(&keys::HEADS, n)?
            .unwrap_or_else(|| vec![0; n]);
        let kv_heads = match config.per_layer(&keys::KV_HEADS, n)? {
            Some(list) => list,
            // a file without the key has as many heads of keys as of queries
            None => heads.clone(),
        };
        // the greatest, as layers of states have 0 heads
        let most_heads = heads.iter().copied().max().unwrap_or(0);
        let of_hidden = || config.hidden_size()?.checked_div(most_heads);
        let size = |field: &'static ConfigField| config.number(field).or_else(of_hidden);
        let any_attention = kv_heads.iter().any(|heads| *heads > 0);
        let dim = |field: &'static ConfigField| match size(field) {
            Some(size) => Ok(size),
            // a model of states alone has no heads
            None if any_attention => Err(config.missing(field)),
            None => Ok(0),
        };
        let state = state(config, most_heads)?;
        let interval = config.number(&keys::ATTENTION_INTERVAL);
        let shared = config.number(&keys::SHARING_LAYERS);
        let shared = shared.and_then(|shared| usize::try_from(shared).ok());
        let shared_from = match (shared, facts.own_layers) {
            (Some(shared), _) => n.saturating_sub(shared),
            (None, Some(own)) => own.min(n),
            (None, None) => n,
        };
        let mut keys = Self {
            config,
            facts,
            kv_heads,
            k_dim: dim(&keys::HEAD_DIM)?,
            v_dim: dim(&keys::VALUE_HEAD_DIM)?,
            feed_forward: config.per_layer(&keys::FEED_FORWARD, n)?,
            windows: vec![false; n],
            window: config
                .number(&keys::SLIDING_WINDOW)
                .filter(|window| *window > 0),
            window_why: "llama.cpp's table",
            ignored_window: false,
            shared_from,
            state,
            interval: interval.or(facts.attention_interval),
        };
        keys.find_windows(n);
        Ok(keys)
    }

    fn find_windows(&mut self, n: usize) {
        let field = &keys::WINDOW_PATTERN;
        let every = |period: u64| -> Vec<bool> {
            let full = |i: usize| period > 0 && (i as u64 + 1).is_multiple_of(period);
            (0..n).map(|i| !full(i)).collect()
        };
        if let Windows::Chunks(period) = self.facts.windows {
            self.window.get_or_insert(CHUNK);
            self.windows = every(period);
        } else if self.window.is_some() {
            let listed = self.config.list(field).filter(|list| list.len() >= n);
            if let Some(list) = listed {
                // true, or 1, where a layer has a window
                let has = |value: &Json| {
                    value.as_bool() == Some(true) || value.as_u64().is_some_and(|n| n > 0)
                };
                self.windows = list.iter().take(n).map(has).collect();
                self.window_why = field.key(true);
            } else if let Some(period) = self.config.number(field) {
                self.windows = every(period);
                self.window_why = field.key(true);
            } else if let Windows::Every(period) = self.facts.windows {
                self.windows = every(period);
            } else {
                // noted: the same model may keep less in another engine
                self.ignored_window = true;
            }
        }
    }

    fn layer(&self, i: usize, push: &mut dyn FnMut(LayerCache, &'static str)) -> Result<()> {
        let why = keys::KV_HEADS.key(true);
        if i >= self.shared_from {
            push(LayerCache::Shared, keys::SHARING_LAYERS.key(true));
            return Ok(());
        }
        if let (Some(state), Windows::Both) = (self.state, self.facts.windows) {
            push(state, "ssm");
        } else if self.is_recurrent(i) {
            match self.state {
                Some(state) => push(state, why),
                None => push(LayerCache::None, why),
            }
            return Ok(());
        }
        if self.kv_heads[i] == 0 {
            // a layer without attention whose feed-forward network is all that it has
            push(LayerCache::None, why);
            return Ok(());
        }
        let (cache, why) = self.attention(i)?;
        push(cache, why);
        Ok(())
    }

    /// Whether the layer has a state instead of an attention.
    fn is_recurrent(&self, i: usize) -> bool {
        if self.state.is_none() {
            return false;
        }
        if let Some(interval) = self.interval {
            return interval == 0 || !(i as u64 + 1).is_multiple_of(interval);
        }
        let feed_forward = self.feed_forward.as_ref().map_or(0, |list| list[i]);
        self.kv_heads[i] == 0 && !(self.facts.has_empty_layers && feed_forward > 0)
    }

    fn attention(&self, i: usize) -> Result<(LayerCache, &'static str)> {
        let size = |field: &'static ConfigField| self.config.number(field);
        if let (Some(_), Some(rank)) = (size(&keys::LATENT_HEAD_DIM), size(&keys::LATENT_RANK)) {
            let cache = LayerCache::Latent {
                rank,
                rope: self.config.required(&keys::ROTATED_DIM)?,
                index: size(&keys::INDEX_DIM).unwrap_or(0),
            };
            return Ok((cache, keys::LATENT_HEAD_DIM.key(true)));
        }
        let heads = self.kv_heads[i];
        match self.window.filter(|_| self.windows[i]) {
            Some(window) => {
                let k = size(&keys::WINDOW_HEAD_DIM).unwrap_or(self.k_dim);
                let v = size(&keys::WINDOW_VALUE_HEAD_DIM).unwrap_or(self.v_dim);
                let shape = AttentionShape::new(heads, k, v);
                Ok(match self.facts.windows {
                    Windows::Chunks(_) => (
                        LayerCache::Chunk {
                            shape,
                            chunk: window,
                        },
                        self.window_why,
                    ),
                    _ => (LayerCache::Window { shape, window }, self.window_why),
                })
            }
            None => {
                let shape = AttentionShape::new(heads, self.k_dim, self.v_dim);
                Ok((LayerCache::Full(shape), keys::KV_HEADS.key(true)))
            }
        }
    }
}

/// The state of a recurrent layer: llama.cpp's `n_embd_r` and `n_embd_s`.
fn state(config: &ModelConfig, heads: u64) -> Result<Option<LayerCache>> {
    let size = |field: &'static ConfigField| config.number(field);
    if let Some(kernel) = size(&keys::SHORT_CONVOLUTION) {
        let channels = config.required(&keys::HIDDEN_SIZE)?;
        return Ok(Some(LayerCache::Conv { channels, kernel }));
    }
    if let Some(dim) = size(&keys::LINEAR_HEAD_DIM) {
        return Ok(Some(LayerCache::Recurrent(StateShape {
            heads,
            // the convolutions of query, key and value
            head_channels: dim.saturating_mul(3),
            // keys by values
            head_state: dim.saturating_mul(dim),
            groups: 0,
            group_channels: 0,
            kernel: size(&keys::STATE_KERNEL).unwrap_or(4),
            model_dtype: false,
        })));
    }
    let (Some(inner), Some(state)) = (size(&keys::STATE_CHANNELS), size(&keys::STATE_SIZE)) else {
        return Ok(None);
    };
    Ok(Some(LayerCache::Recurrent(StateShape {
        // a state per channel: their product is all that llama.cpp allocates by
        heads: inner,
        head_channels: 1,
        head_state: state,
        groups: size(&keys::STATE_GROUPS).unwrap_or(0),
        // B and C of a state-space layer pass the convolution too
        group_channels: state.saturating_mul(2),
        kernel: size(&keys::STATE_KERNEL).unwrap_or(0),
        model_dtype: false,
    })))
}
