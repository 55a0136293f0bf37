//! The result of an estimate, as data: what `anamnesis fit --json` prints.

use serde::Serialize;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Basis {
    /// The allocated bytes, exactly.
    Exact,
    /// The engine's own rule, which was read in its source and not measured for this model.
    Formula,
    /// At most this.
    Bound,
    /// There is no number.
    NotEstimated,
}

impl Basis {
    /// The name, for people: `exact`, `formula`, `bound`, `not estimated`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Formula => "formula",
            Self::Bound => "bound",
            Self::NotEstimated => "not estimated",
        }
    }
}

/// The memory that a model takes, with all terms of the sum. Made by [`Fit::estimate`](crate::Fit::estimate).
///
/// `serde_json::to_value(&estimate)` is one element of the `models` array that `anamnesis fit --json` prints;
/// `docs/json.md` documents it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// Path of the model; `None` for a reader, bytes or a configuration.
    pub path: Option<String>,
    /// The architecture of the language model.
    pub model_type: Option<String>,
    /// Where the configuration was read: `config.json` or `GGUF`.
    pub source: Option<&'static str>,
    /// Number of layers.
    pub layers: Option<u64>,
    /// The longest context that the model was made for.
    pub context_max: Option<u64>,
    /// Numbers of parameters.
    pub parameters: Parameters,
    /// The engine by whose rule the cache is computed.
    pub engine: &'static str,
    /// Tokens per sequence.
    pub context: u64,
    /// Sequences.
    pub batch: u64,
    /// The weights of the whole model.
    pub weights: WeightsEstimate,
    /// The cache of the whole model.
    pub cache: CacheEstimate,
    /// Buffers of a computation.
    pub compute: ComputeEstimate,
    /// Bytes that the caller added.
    pub overhead_nbytes: u64,
    /// Models that are loaded too.
    pub extras: Vec<ExtraEstimate>,
    /// The workers; one without parallelism.
    pub ranks: Vec<RankEstimate>,
    /// Bytes of the worker that takes most.
    pub total_nbytes: Option<u64>,
    /// The basis of the total: the weakest basis of its terms.
    pub basis: Basis,
    /// The same for the contexts that were listed; for several where none was set.
    pub contexts: Vec<ContextEstimate>,
    /// Whether it fits, where a memory was set.
    pub memory: Option<MemoryFit>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Facts that could not be found out.
    pub unknown: Vec<String>,
}

/// Numbers of parameters; `None` where they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Parameters {
    /// All of them.
    pub total: Option<u64>,
    /// Those that one token uses.
    pub active: Option<u64>,
    /// Parameters of routed experts.
    pub experts: Option<u64>,
    /// Parameters of image encoders and their projections.
    pub vision: Option<u64>,
}

/// The weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WeightsEstimate {
    /// Bytes in memory; `None` without weights.
    pub nbytes: Option<u64>,
    /// Bytes as stored.
    pub stored_nbytes: Option<u64>,
    /// `stored`, or the dtype that they are dequantised to.
    pub dtype: String,
    /// The dtypes that are stored, the one with the most bytes first.
    pub stored_dtypes: Vec<String>,
    /// The basis of the number.
    pub basis: Basis,
}

/// The cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CacheEstimate {
    /// Bytes of all layers and sequences; `None` if there is no number.
    pub nbytes: Option<u64>,
    /// How keys are stored.
    pub k_dtype: String,
    /// How values are stored.
    pub v_dtype: String,
    /// Bytes that a token adds while no window is full.
    pub nbytes_per_token: Option<u64>,
    /// Bytes that do not depend on the number of tokens.
    pub fixed_nbytes: Option<u64>,
    /// Bytes that an engine's pages waste.
    pub padding_nbytes: u64,
    /// The basis of the number.
    pub basis: Basis,
    /// The terms of the sum, by kinds of layers.
    pub groups: Vec<GroupEstimate>,
}

/// Layers that keep the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupEstimate {
    /// `full`, `window`, `chunk`, `latent`, `recurrent`, `conv`, `cross`, `shared` or `none`.
    pub kind: &'static str,
    /// Numbers of the layers.
    pub layers: Vec<u32>,
    /// Tokens of a window or chunk.
    pub window: Option<u64>,
    /// Tokens for which there is room, in each stream.
    pub tokens: u64,
    /// Sequences, or caches that several sequences share.
    pub streams: u64,
    /// Elements of the keys of a token, or of a latent vector.
    pub k_elements: u64,
    /// Elements of the values of a token.
    pub v_elements: u64,
    /// Elements of a state.
    pub state_elements: u64,
    /// Bytes of one layer, for all streams.
    pub nbytes_each: u64,
    /// The reason for the kind.
    pub why: &'static str,
}

/// Buffers of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ComputeEstimate {
    /// Bytes; `None` if there is no number.
    pub nbytes: Option<u64>,
    /// The basis of the number.
    pub basis: Basis,
}

/// A model that is loaded in addition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExtraEstimate {
    /// `draft`, `projector` or `adapter`.
    pub role: &'static str,
    /// Its path.
    pub path: Option<String>,
    /// Bytes of its weights on the worker that takes most.
    pub weights_nbytes: u64,
    /// Bytes of its cache; `None` if there is no number.
    pub cache_nbytes: Option<u64>,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankEstimate {
    /// Its rank.
    pub rank: u32,
    /// Its place among those that share matrices.
    pub tp: u32,
    /// Its stage.
    pub pp: u32,
    /// Bytes of its weights.
    pub weights_nbytes: Option<u64>,
    /// Bytes of its cache.
    pub cache_nbytes: Option<u64>,
    /// Bytes of all that it holds.
    pub total_nbytes: Option<u64>,
}

/// The estimate for another context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ContextEstimate {
    /// Tokens per sequence.
    pub context: u64,
    /// Bytes of the whole model's cache.
    pub cache_nbytes: Option<u64>,
    /// Bytes of the worker that takes most.
    pub total_nbytes: Option<u64>,
}

/// Whether a model fits into a memory, and what does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryFit {
    /// Bytes of the memory of each worker.
    pub nbytes: u64,
    /// Whether the estimate fits; `None` if there is no total.
    pub fits: Option<bool>,
    /// Bytes that are left; 0 if it does not fit.
    pub left_nbytes: Option<u64>,
    /// The longest context that fits with this batch, up to that which the model was made for; `None` if not even one
    /// token does, or if there is no number.
    pub largest_context: Option<u64>,
    /// The most sequences that fit with this context.
    pub largest_batch: Option<u64>,
}
