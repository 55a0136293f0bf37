//! The known facts about a model's layers, and contradictions to them.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::Budget;
use crate::models::architectures;
use crate::models::caches::{self, ModelLayers};
use crate::models::config::ModelConfig;

use super::cache_type::CacheType;
use super::engine::InferenceEngine;
use super::estimate::Basis;
use super::reservation::Reservation;
use super::weights::ModelWeights;
use crate::models::caches::LayerCache;

/// The layers, and whether their architecture is known. Without a row: an upper bound, or nothing.
pub(super) fn found_layers(
    config: &ModelConfig,
    engine: InferenceEngine,
    budget: &Budget,
    unknown: &mut Vec<String>,
) -> Result<(Option<ModelLayers>, bool)> {
    let over_limit = |error: &Error| matches!(error.kind(), ErrorKind::Limit { .. });
    if config.is_empty() {
        unknown.push("there is no config.json and no metadata: the cache is not estimated from a configuration".to_owned());
        return Ok((None, false));
    }
    // transformers' cache has the heads that its attention computes with
    let expanded = matches!(
        engine,
        InferenceEngine::Exact | InferenceEngine::Transformers
    );
    let error = match architectures::layers(config, expanded, budget) {
        Ok(layers) => return Ok((Some(layers), true)),
        Err(error) if over_limit(&error) => return Err(error),
        Err(error) => error,
    };
    Ok(match caches::bound(config, budget) {
        Err(error) if over_limit(&error) => return Err(error),
        Ok(layers) => {
            unknown.push(format!(
                "{error}: the cache is an upper bound, with attention to all tokens in each layer"
            ));
            (Some(layers), false)
        }
        Err(_) => {
            unknown.push(format!("{error}: the cache is not estimated"));
            (None, false)
        }
    })
}

/// The basis of a cache of known layers by this rule.
pub(super) fn basis_of_rule(asked: &Reservation) -> Basis {
    let is_plain = |kind| matches!(kind, CacheType::Plain(_));
    // the tests compare these with allocations of the engines
    let measured = match asked.engine {
        InferenceEngine::Exact | InferenceEngine::Transformers => {
            is_plain(asked.k) && is_plain(asked.v)
        }
        InferenceEngine::LlamaCpp => true,
        InferenceEngine::Vllm => false,
    };
    if measured {
        Basis::Exact
    } else {
        Basis::Formula
    }
}

/// Verifies that the engine has a cache of these types.
pub(super) fn check_types(
    caches: &[LayerCache],
    asked: &Reservation,
    notes: &mut Vec<String>,
) -> Result<()> {
    let is_vllm = asked.engine == InferenceEngine::Vllm;
    for kind in [asked.k, asked.v] {
        // vLLM has no blocks of ggml, and no other engine has its own types
        let wrong = match kind {
            CacheType::Plain(_) => false,
            CacheType::Block(_) => is_vllm,
            _ => !is_vllm,
        };
        if wrong {
            return Err(Error::invalid_argument(format!(
                "{} has no cache of type {kind}",
                asked.engine
            )));
        }
    }
    if asked.k == CacheType::DsMla && caches.iter().any(|cache| cache.attention().is_some()) {
        return Err(Error::invalid_argument(
            "fp8_ds_mla is a cache of latent attention, which this model has not in all layers",
        ));
    }
    let divides = caches.iter().all(|cache| match *cache {
        LayerCache::Latent { rank, rope, .. } => asked.k.divides(1, rank.saturating_add(rope)),
        _ => cache.attention().is_none_or(|shape| {
            asked.k.divides(shape.kv_heads, shape.k_dim)
                && asked.v.divides(shape.kv_heads, shape.v_dim)
        }),
    });
    if !divides {
        notes.push(
            "keys or values of a token do not fill whole blocks: llama.cpp refuses this cache"
                .to_owned(),
        );
    }
    Ok(())
}

/// Notes where the tensors have another number of layers than the configuration.
pub(super) fn compare_layers(
    layers: Option<u64>,
    weights: &ModelWeights<'_>,
    config: &ModelConfig,
    notes: &mut Vec<String>,
) {
    // the last number and not the count: a file may hold some of the layers
    let stored = weights
        .rows
        .keys()
        .next_back()
        .map(|last| u64::from(*last) + 1);
    let (Some(layers), Some(stored)) = (layers, stored) else {
        return;
    };
    if stored != layers && stored != layers.saturating_add(config.further_layers()) {
        notes.push(format!(
            "the tensors have {stored} layers, the configuration {layers}: the weights are those of the tensors, the cache \
             that of the configuration"
        ));
    }
}
