//! A model whose files have been read: all that is left is arithmetic for a number of tokens and sequences.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::progress::RunProgress;
use crate::engine::predict::{WorkerHolding, pipeline_stage, predict};
use crate::models::config::ModelConfig;
use crate::models::parallel::HeadCounts;
use crate::read::checkpoint::Checkpoint;

use super::Fit;
use super::cache_rules;
use super::cache_type::CacheType;
use super::compute;
use super::engine::InferenceEngine;
use super::estimate::Basis;
use super::findings::{basis_of_rule, check_types, compare_layers, found_layers};
use super::reservation::{CacheCost, Reservation};
use super::tensors;
use super::vllm;
use super::weights::{ModelWeights, weights};
use crate::models::caches::{LayerGroup, NumberedCache, grouped};

/// A model, and what it keeps.
#[derive(Debug)]
pub(super) struct PreparedModel<'c> {
    pub(super) config: ModelConfig,
    pub(super) weights: Option<ModelWeights<'c>>,
    pub(super) layers: Option<u64>,
    /// All layers of the whole model.
    pub(super) groups: Vec<LayerGroup>,
    /// By stage, what one of its workers keeps.
    stages: Vec<Vec<LayerGroup>>,
    /// The weights that each worker holds; without weights their places alone.
    pub(super) workers: Vec<WorkerHolding>,
    /// The basis of the groups.
    pub(super) cache_basis: Basis,
    pub(super) asked: Reservation,
    /// Bytes on every worker besides its weights and its cache, which do not depend on tokens.
    pub(super) added: u64,
    pub(super) notes: Vec<String>,
    pub(super) unknown: Vec<String>,
}

/// The sums for a number of tokens and sequences.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// The cache of the whole model.
    pub(super) cache: Option<CacheCost>,
    pub(super) compute: Option<u64>,
    /// By stage, of one worker's cache.
    pub(super) stages: Vec<Option<u64>>,
}

/// Tokens of a step: llama.cpp's default, and the default of vLLM's server on a large device.
const LLAMA_CPP_STEP: u64 = 512;
const VLLM_STEP: u64 = 8192;
/// Tokens of a page of vLLM.
const VLLM_BLOCK: u64 = 16;
/// Context where none is set, unless the model was made for a shorter one.
const CONTEXT: u64 = 32 << 10;

impl<'c> PreparedModel<'c> {
    pub(super) fn new(
        fit: &Fit<'_>,
        checkpoint: Option<&'c Checkpoint>,
        progress: &RunProgress<'_>,
    ) -> Result<Self> {
        let budget = match checkpoint {
            Some(checkpoint) => checkpoint.budget(),
            // a configuration was parsed under limits of its own
            None => Budget::new(crate::base::limits::Limits::default()),
        };
        let config = match (&fit.config, checkpoint) {
            (Some(config), _) => config.clone(),
            (None, Some(checkpoint)) => ModelConfig::load(checkpoint, &budget)?,
            (None, None) => ModelConfig::default(),
        };
        let weights = match checkpoint {
            Some(checkpoint) => Some(weights(checkpoint, &config, fit, progress, &budget)?),
            None => None,
        };
        let engine = fit.engine.unwrap_or(if config.is_gguf() {
            InferenceEngine::LlamaCpp
        } else {
            InferenceEngine::Exact
        });
        let asked = reservation(fit, checkpoint, &config, engine);
        let mut notes = Vec::new();
        let mut unknown = Vec::new();
        if let Some(weights) = &weights {
            notes.extend(weights.notes.iter().cloned());
        }
        let (found, known) = found_layers(&config, engine, &budget, &mut unknown)?;
        let found = found.unwrap_or_default();
        let (mut caches, attentions) = (found.caches, found.attentions.max(1));
        // 0: the configuration says nothing, and the tensors decide
        let layers = Some(found.layers).filter(|layers| *layers > 0);
        notes.extend(found.notes);
        let mut from_tensors = false;
        if let Some(weights) = &weights {
            if caches.is_empty() {
                caches = tensors::alone(&weights.rows);
                from_tensors = !caches.is_empty();
            } else {
                tensors::correct(&mut caches, &weights.rows, &mut notes, &mut unknown);
            }
            compare_layers(layers, weights, &config, &mut notes);
        }
        check_types(
            &caches.iter().map(|layer| layer.cache).collect::<Vec<_>>(),
            &asked,
            &mut notes,
        )?;
        let cache_basis = match (caches.is_empty(), known) {
            (true, _) => Basis::NotEstimated,
            (false, false) => Basis::Bound,
            (false, true) => basis_of_rule(&asked),
        };
        if from_tensors {
            unknown.push("the cache is that of the keys and values in the tensors, for all tokens in each layer".to_owned());
        }
        let layers =
            layers.or_else(|| caches.iter().map(|layer| u64::from(layer.number) + 1).max());
        // before the lists of stages: it refuses degrees that no model has
        let workers = workers(fit, checkpoint, weights.as_ref(), &config, &budget)?;
        let mut stages: Vec<Vec<_>> = vec![Vec::new(); fit.pp.max(1) as usize];
        for layer in &caches {
            // caches are numbered by attention, and a block may have two
            let number = u64::from(layer.number / attentions);
            let stage = pipeline_stage(number, layers.unwrap_or(1), fit.pp);
            stages[stage as usize].push(NumberedCache {
                cache: layer.cache.share(fit.tp),
                ..*layer
            });
        }
        Ok(Self {
            config,
            weights,
            layers,
            groups: grouped(caches),
            stages: stages.into_iter().map(grouped).collect(),
            workers,
            cache_basis,
            asked,
            added: fit.overhead,
            notes,
            unknown,
        })
    }

    /// The sums for this context and batch.
    pub(super) fn sums(&self, context: u64, batch: u64) -> Sums {
        let asked = Reservation {
            context,
            batch,
            ..self.asked
        };
        let estimated = self.cache_basis != Basis::NotEstimated;
        let cost =
            |groups: &[LayerGroup]| cache_rules::cost(groups, &asked).ok().filter(|_| estimated);
        let cache = cost(&self.groups);
        let compute = match (asked.engine, &cache) {
            // no rule for the buffers of the others is known
            (InferenceEngine::LlamaCpp, Some(cost)) => {
                compute::llama_cpp(&self.config, &self.groups, cost, &asked)
            }
            _ => None,
        };
        let stages = match &self.stages[..] {
            // one stage, whose workers keep all heads: the whole model
            [only] if *only == self.groups => vec![cache.as_ref().map(|cost| cost.nbytes)],
            several => several
                .iter()
                .map(|groups| Some(cost(groups)?.nbytes))
                .collect(),
        };
        Sums {
            cache,
            compute,
            stages,
        }
    }

    /// Bytes of a worker with these sums; `None` if a term of them has no number. A computation that is not estimated is left
    /// out.
    pub(super) fn total_of(&self, worker: &WorkerHolding, sums: &Sums) -> Option<u64> {
        // a configuration alone: a total without weights would be taken for the model's
        self.weights.as_ref()?;
        let terms = [
            worker.nbytes,
            sums.stages[worker.pp as usize]?,
            sums.compute.unwrap_or(0),
            self.added,
        ];
        terms.into_iter().try_fold(0u64, u64::checked_add)
    }

    /// Bytes of the worker that takes most.
    pub(super) fn total(&self, sums: &Sums) -> Option<u64> {
        let mut most = 0;
        for worker in &self.workers {
            most = self.total_of(worker, sums)?.max(most);
        }
        Some(most)
    }

    /// The greatest number up to `most` for which `fits` holds; it holds for all smaller ones. `None` if it does not for 1.
    fn largest(most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        if !fits(1) {
            return None;
        }
        // by bisection: the sum has steps (pages, windows) and no inverse
        let (mut good, mut bad) = (1, most.saturating_add(1));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if fits(middle) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        Some(good)
    }

    /// The longest context that fits. `extras` are the bytes of other models for a context and batch.
    pub(super) fn largest_context(
        &self,
        memory: u64,
        extras: &dyn Fn(u64, u64) -> Option<u64>,
    ) -> Option<u64> {
        let most = self
            .config
            .context_max()
            .unwrap_or(MAX_CONTEXT)
            .clamp(1, MAX_CONTEXT);
        let batch = self.asked.batch;
        Self::largest(most, |context| self.fits(memory, context, batch, extras))
    }

    /// The most sequences that fit.
    pub(super) fn largest_batch(
        &self,
        memory: u64,
        extras: &dyn Fn(u64, u64) -> Option<u64>,
    ) -> Option<u64> {
        let context = self.asked.context;
        Self::largest(MAX_BATCH, |batch| self.fits(memory, context, batch, extras))
    }

    fn fits(
        &self,
        memory: u64,
        context: u64,
        batch: u64,
        extras: &dyn Fn(u64, u64) -> Option<u64>,
    ) -> bool {
        let own = self.total(&self.sums(context, batch));
        let total = own.and_then(|own| own.checked_add(extras(context, batch)?));
        total.is_some_and(|total| total <= memory)
    }
}

/// The longest context and the largest batch that are searched for.
// beyond any memory; the bisection takes 40 steps
const MAX_CONTEXT: u64 = 1 << 40;
const MAX_BATCH: u64 = 1 << 20;

fn reservation(
    fit: &Fit<'_>,
    checkpoint: Option<&Checkpoint>,
    config: &ModelConfig,
    engine: InferenceEngine,
) -> Reservation {
    let of_tensors =
        || checkpoint.map_or(Dtype::BF16, |checkpoint| most_frequent(checkpoint, config));
    let model = config.dtype().unwrap_or_else(of_tensors);
    let default = match engine {
        InferenceEngine::LlamaCpp => Dtype::F16,
        _ => model,
    };
    let longest = config.context_max().unwrap_or(CONTEXT).max(1);
    let default_step = match engine {
        InferenceEngine::Vllm => VLLM_STEP,
        // without an effect in the engines that have no steps
        _ => LLAMA_CPP_STEP,
    };
    Reservation {
        engine,
        preallocated: fit.preallocated,
        context: fit.context.unwrap_or(CONTEXT.min(longest)),
        batch: fit.batch,
        k: fit.key_type.unwrap_or(CacheType::Plain(default)),
        v: fit.value_type.unwrap_or(CacheType::Plain(default)),
        model,
        vllm_state: vllm::state_dtype(config, model),
        encoder_tokens: fit.encoder_tokens,
        step: fit.step_tokens.unwrap_or(default_step),
        block: fit.page_tokens.unwrap_or(VLLM_BLOCK),
        unified: fit.unified_cache,
        whole_windows: fit.whole_windows,
        hybrid: fit.hybrid_allocator,
    }
}

/// The dtype of a model without a stated one: the floating-point dtype with most stored bytes. A GGUF's model has F16 where
/// it is quantised.
fn most_frequent(checkpoint: &Checkpoint, config: &ModelConfig) -> Dtype {
    let sum = |dtype: Dtype| {
        let tensors = checkpoint.catalog().tensors().iter();
        let own =
            tensors.filter(|info| info.encoding == crate::read::catalog::Encoding::Plain(dtype));
        own.map(|info| info.nbytes()).fold(0, u64::saturating_add)
    };
    if config.is_gguf() {
        return if sum(Dtype::BF16) > sum(Dtype::F16) {
            Dtype::BF16
        } else {
            Dtype::F16
        };
    }
    let dtypes = [Dtype::BF16, Dtype::F16, Dtype::F32];
    // reversed, as the last of equals is taken: BF16 wins a tie
    let most = dtypes.into_iter().rev().max_by_key(|dtype| sum(*dtype));
    most.filter(|dtype| sum(*dtype) > 0).unwrap_or(Dtype::BF16)
}

/// The workers, and what each holds of the weights.
fn workers(
    fit: &Fit<'_>,
    checkpoint: Option<&Checkpoint>,
    weights: Option<&ModelWeights<'_>>,
    config: &ModelConfig,
    budget: &Budget,
) -> Result<Vec<WorkerHolding>> {
    let (Some(checkpoint), Some(weights)) = (checkpoint, weights) else {
        return WorkerHolding::nothing(fit.tp, fit.pp);
    };
    // one worker holds every byte: no prediction is needed
    if (fit.tp, fit.pp, fit.ep) == (1, 1, 1) {
        return Ok(vec![WorkerHolding {
            rank: 0,
            tp: 0,
            pp: 0,
            nbytes: weights.nbytes,
        }]);
    }
    let heads = HeadCounts::in_config(config);
    let predict = predict(checkpoint).tp(fit.tp).pp(fit.pp).ep(fit.ep);
    let list = weights.tensors.list();
    // with their positions in the model, once for all workers
    budget.memory(list.len() as u64 * 160, "the weights of workers")?;
    predict.held(&list, &heads)
}
