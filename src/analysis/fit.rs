//! `fit`: the memory that a model takes, weights and cache, by the rule of an engine that is named.
//!
//! There is no one number: engines reserve by different rules, and differ by factors for the same model. So the rule is named,
//! the sum is shown with its terms, and each number says what it is ([`Basis`]). An architecture that is not known gets an
//! upper bound, and the estimate says so.

mod builder;
mod cache_rules;
mod cache_type;
mod compute;
mod engine;
mod estimate;
mod findings;
mod prepared;
mod reservation;
mod tensors;
mod terms;
mod vllm;
mod weights;

use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::progress::RunProgress;
use crate::models::config::ModelConfig;
use crate::read::checkpoint::{Checkpoint, CheckpointHandle};
use crate::read::run_options::RunOptions;

pub use crate::models::caches::{AttentionShape, LayerCache, LayerGroup, StateShape};
pub use cache_type::CacheType;
pub use engine::InferenceEngine;
pub use estimate::{
    Basis, CacheEstimate, ComputeEstimate, ContextEstimate, Estimate, ExtraEstimate, GroupEstimate,
    MemoryFit, Parameters, RankEstimate, WeightsEstimate,
};

use prepared::{PreparedModel, Sums};
use terms::{ExtraRole, PreparedExtra, cache_of, ranks, sum_of_extras, weakest, weights_of};

/// Estimates the memory that a model takes. Made by [`fit`] or [`fit_config`].
#[derive(Clone)]
pub struct Fit<'c> {
    checkpoint: Option<CheckpointHandle<'c>>,
    config: Option<ModelConfig>,
    context: Option<u64>,
    context_rows: Option<Vec<u64>>,
    batch: u64,
    key_type: Option<CacheType>,
    value_type: Option<CacheType>,
    engine: Option<InferenceEngine>,
    preallocated: bool,
    dtype: Option<Dtype>,
    tp: u32,
    pp: u32,
    ep: u32,
    memory: Option<u64>,
    overhead: u64,
    encoder_tokens: Option<u64>,
    step_tokens: Option<u64>,
    page_tokens: Option<u64>,
    unified_cache: bool,
    whole_windows: bool,
    hybrid_allocator: bool,
    extras: Vec<(ExtraRole, CheckpointHandle<'c>)>,
    options: RunOptions<'c>,
}

/// Estimates the memory that a model takes: its weights, and the cache of its layers for a number of tokens and sequences.
/// Reads headers and the configuration, and no other bytes.
///
/// ```
/// use anamnesis::{Checkpoint, fit};
///
/// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
/// let estimate = fit(&checkpoint).context(512).batch(2).memory(8 << 20).estimate()?;
/// for group in &estimate.cache.groups {
///     println!("{} layers {}: {} bytes each", group.layers.len(), group.kind, group.nbytes_each);
/// }
/// assert_eq!(estimate.engine, "llama.cpp");
/// assert!(estimate.memory.and_then(|memory| memory.fits) == Some(true));
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// With an `Arc<Checkpoint>` the builder has no lifetime: see [`CheckpointHandle`].
pub fn fit<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Fit<'c> {
    Fit {
        checkpoint: Some(checkpoint.into()),
        ..empty()
    }
}

/// Like [`fit`], for a configuration without weights: the cache alone is estimated.
///
/// ```
/// use anamnesis::ModelConfig;
/// use anamnesis::fit::fit_config;
///
/// let text = br#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}"#;
/// let estimate = fit_config(ModelConfig::from_json(text)?).context(100).estimate()?;
/// // 2 layers, 100 tokens, keys and values of 4 heads of 16 elements in BF16
/// assert_eq!(estimate.cache.nbytes, Some(2 * 100 * 2 * 64 * 2));
/// assert_eq!(estimate.total_nbytes, None);
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn fit_config<'c>(config: ModelConfig) -> Fit<'c> {
    Fit {
        config: Some(config),
        ..empty()
    }
}

fn empty<'c>() -> Fit<'c> {
    Fit {
        checkpoint: None,
        config: None,
        context: None,
        context_rows: None,
        batch: 1,
        key_type: None,
        value_type: None,
        engine: None,
        preallocated: false,
        dtype: None,
        tp: 1,
        pp: 1,
        ep: 1,
        memory: None,
        overhead: 0,
        encoder_tokens: None,
        step_tokens: None,
        page_tokens: None,
        unified_cache: false,
        whole_windows: false,
        // vLLM's default
        hybrid_allocator: true,
        extras: Vec::new(),
        options: RunOptions::default(),
    }
}

impl Fit<'_> {
    /// The caches of the layers, in groups of layers that keep the same, and the facts that could not be found out.
    ///
    /// # Errors
    /// The errors of [`estimate`](Self::estimate).
    pub fn layers(&self) -> Result<Vec<LayerGroup>> {
        let progress = self.progress_of(&[]);
        Ok(self.prepared(self.checkpoint.as_deref(), &progress)?.groups)
    }

    /// The estimate.
    ///
    /// # Errors
    /// No tokens, sequences or workers; a cache of a type that the engine has not; a configuration that is not a JSON object;
    /// a plan or a configuration over [`Limits::memory`](crate::Limits::memory). Missing entries of a configuration, and an
    /// architecture that is not known, are no errors: [`Estimate::unknown`] says so.
    pub fn estimate(&self) -> Result<Estimate> {
        let (model, extras) = self.models()?;
        let (context, batch) = (model.asked.context, model.asked.batch);
        let of_extras = |context, batch| sum_of_extras(&extras, context, batch);
        let sums = model.sums(context, batch);
        let more = of_extras(context, batch);
        // no total, rather than one that lacks a term
        let total = |sums: &Sums, more: Option<u64>| model.total(sums)?.checked_add(more?);
        let total_nbytes = total(&sums, more);
        let contexts = self.listed_contexts(&model).into_iter().map(|context| {
            let sums = model.sums(context, batch);
            ContextEstimate {
                context,
                cache_nbytes: sums.cache.as_ref().map(|cost| cost.nbytes),
                total_nbytes: total(&sums, of_extras(context, batch)),
            }
        });
        let contexts = contexts.collect();
        let memory = self.memory.map(|memory| MemoryFit {
            nbytes: memory,
            fits: total_nbytes.map(|total| total <= memory),
            left_nbytes: total_nbytes.map(|total| memory.saturating_sub(total)),
            largest_context: model.largest_context(memory, &of_extras),
            largest_batch: model.largest_batch(memory, &of_extras),
        });
        let mut notes = model.notes.clone();
        self.compare_engines(&model, &sums, &mut notes);
        let weights = weights_of(&model, self.dtype);
        let compute = ComputeEstimate {
            nbytes: sums.compute,
            basis: if sums.compute.is_some() {
                Basis::Bound
            } else {
                Basis::NotEstimated
            },
        };
        Ok(Estimate {
            path: self
                .checkpoint
                .as_deref()
                .and_then(Checkpoint::path)
                .map(|path| path.display().to_string()),
            model_type: model.config.model_type().map(str::to_owned),
            source: model.config.origin(),
            layers: model.layers,
            context_max: model.config.context_max(),
            parameters: model
                .weights
                .as_ref()
                .map(|weights| weights.parameters)
                .unwrap_or_default(),
            engine: model.asked.engine.name(),
            context,
            batch,
            // a total is as uncertain as its least certain term
            basis: weakest([weights.basis, model.cache_basis]),
            weights,
            cache: cache_of(&model, &sums),
            compute,
            overhead_nbytes: self.overhead,
            extras: extras
                .iter()
                .map(|extra| extra.estimate(context, batch))
                .collect(),
            ranks: ranks(&model, &sums, more),
            total_nbytes,
            contexts,
            memory,
            notes,
            unknown: model.unknown,
        })
    }

    /// The longest context whose estimate takes at most this memory per worker; `None` if there is none, or no total.
    ///
    /// # Errors
    /// The errors of [`estimate`](Self::estimate).
    pub fn largest_context(&self, memory: u64) -> Result<Option<u64>> {
        let (model, extras) = self.models()?;
        let of_extras = |context, batch| sum_of_extras(&extras, context, batch);
        Ok(model.largest_context(memory, &of_extras))
    }

    /// The largest batch whose estimate takes at most this memory per worker; `None` if there is none, or no total.
    ///
    /// # Errors
    /// The errors of [`estimate`](Self::estimate).
    pub fn largest_batch(&self, memory: u64) -> Result<Option<u64>> {
        let (model, extras) = self.models()?;
        let of_extras = |context, batch| sum_of_extras(&extras, context, batch);
        Ok(model.largest_batch(memory, &of_extras))
    }

    /// Progress in bytes of the tensors of all models.
    fn progress_of(&self, others: &[(ExtraRole, CheckpointHandle<'_>)]) -> RunProgress<'_> {
        let others = others.iter().map(|(_, checkpoint)| &**checkpoint);
        let all = self.checkpoint.as_deref().into_iter().chain(others);
        let total = all.map(|checkpoint| checkpoint.catalog().nbytes());
        RunProgress::new(total.fold(0, u64::saturating_add), &self.options.control)
    }

    /// The model, and what is loaded in addition.
    fn models(&self) -> Result<(PreparedModel<'_>, Vec<PreparedExtra<'_>>)> {
        let progress = self.progress_of(&self.extras);
        let model = self.prepared(self.checkpoint.as_deref(), &progress)?;
        let extras = self.prepared_extras(&model, &progress)?;
        progress.finish();
        Ok((model, extras))
    }

    /// A model with these options: a checkpoint's, or a configuration's alone.
    fn prepared<'m>(
        &self,
        checkpoint: Option<&'m Checkpoint>,
        progress: &RunProgress<'_>,
    ) -> Result<PreparedModel<'m>> {
        // by the names of the options
        let numbers = [
            ("context", self.context.unwrap_or(1)),
            (
                "one of contexts",
                self.context_rows
                    .iter()
                    .flatten()
                    .min()
                    .copied()
                    .unwrap_or(1),
            ),
            ("batch", self.batch),
            ("tp", self.tp.into()),
            ("pp", self.pp.into()),
            ("ep", self.ep.into()),
            ("block", self.page_tokens.unwrap_or(1)),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, number)| *number == 0) {
            return Err(Error::invalid_argument(format!(
                "{name} is 0, and must be at least 1"
            )));
        }
        PreparedModel::new(self, checkpoint, progress)
    }

    fn prepared_extras(
        &self,
        model: &PreparedModel<'_>,
        progress: &RunProgress<'_>,
    ) -> Result<Vec<PreparedExtra<'_>>> {
        let extras = self.extras.iter();
        extras
            .map(|(role, checkpoint)| {
                let own = Fit {
                    checkpoint: None,
                    config: None,
                    engine: Some(model.asked.engine),
                    dtype: None,
                    pp: 1,
                    ep: 1,
                    tp: if *role == ExtraRole::Draft {
                        self.tp
                    } else {
                        1
                    },
                    // counted once, with the model
                    overhead: 0,
                    extras: Vec::new(),
                    ..self.clone()
                };
                Ok(PreparedExtra {
                    role: *role,
                    path: checkpoint.path().map(|path| path.display().to_string()),
                    model: own.prepared(Some(checkpoint), progress)?,
                })
            })
            .collect()
    }

    /// Contexts to show in addition: those that were listed, or a few where no context was set.
    fn listed_contexts(&self, model: &PreparedModel<'_>) -> Vec<u64> {
        if let Some(listed) = &self.context_rows {
            return listed.clone();
        }
        if self.context.is_some() {
            return Vec::new();
        }
        let most = model.config.context_max();
        // a usual chat, the default here, and all that the model was made for
        let mut contexts: Vec<u64> = [4 << 10, 32 << 10]
            .into_iter()
            .filter(|context| most.is_none_or(|most| *context < most))
            .chain(most)
            .collect();
        // the model may have been made for one of them
        contexts.dedup();
        contexts
    }

    /// Notes what other engines would reserve, where it differs by more than a tenth.
    fn compare_engines(&self, model: &PreparedModel<'_>, sums: &Sums, notes: &mut Vec<String>) {
        let Some(own) = sums.cache.as_ref().map(|cost| cost.nbytes) else {
            return;
        };
        let windows = model.groups.iter().any(|group| {
            matches!(
                group.cache,
                LayerCache::Window { .. } | LayerCache::Chunk { .. }
            )
        });
        if model.asked.engine != InferenceEngine::Vllm || !windows || !self.hybrid_allocator {
            return;
        }
        let without = reservation::Reservation {
            hybrid: false,
            ..model.asked
        };
        if let Ok(cost) = cache_rules::cost(&model.groups, &without)
            // divided and not multiplied: both may be near 2⁶⁴
            && cost.nbytes / 11 > own / 10
        {
            notes.push(format!(
                "without its allocator for hybrid models vLLM would reserve {} bytes of cache",
                cost.nbytes
            ));
        }
    }
}

impl fmt::Debug for Fit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fit")
            .field("engine", &self.engine)
            .field("context", &self.context)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
