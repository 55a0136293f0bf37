//! The options of an estimate.

use crate::base::kernel::Dtype;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::run_options::run_options;

use super::terms::ExtraRole;
use super::{CacheType, Fit, InferenceEngine};

run_options!(Fit {
    /// In bytes of tensors of all models, although none are read: the work is proportional to their number.
    progress,
    cancel,
});

impl<'c> Fit<'c> {
    /// Tokens per sequence. Default: 32,768, or what the model was made for if that is less; the estimate then has a few
    /// other contexts too.
    #[must_use]
    pub fn context(mut self, tokens: u64) -> Self {
        self.context = Some(tokens);
        self
    }

    /// The contexts that [`Estimate::contexts`](super::Estimate::contexts) has rows of, for a curve: the model is read once for all
    /// of them. Default: a few, where no context was set.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, fit};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
    /// let estimate = fit(&checkpoint).contexts([256, 512, 1024]).estimate()?;
    /// let caches: Vec<_> = estimate.contexts.iter().map(|row| row.cache_nbytes).collect();
    /// assert!(caches.len() == 3 && caches.is_sorted());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn contexts(mut self, contexts: impl IntoIterator<Item = u64>) -> Self {
        self.context_rows = Some(contexts.into_iter().collect());
        self
    }

    /// Sequences that are computed at once. Default 1.
    #[must_use]
    pub fn batch(mut self, sequences: u64) -> Self {
        self.batch = sequences;
        self
    }

    /// How keys and values are stored. Default: in the dtype of the model; in F16 in llama.cpp.
    #[must_use]
    pub fn cache(mut self, keys: CacheType, values: CacheType) -> Self {
        (self.key_type, self.value_type) = (Some(keys), Some(values));
        self
    }

    /// The engine by whose rule the cache is computed. Default: llama.cpp for a GGUF, else
    /// [`InferenceEngine::Exact`].
    #[must_use]
    pub fn engine(mut self, engine: InferenceEngine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Whether transformers allocates its cache for the whole context at once (`StaticCache`). Default off: it grows.
    #[must_use]
    pub fn preallocated(mut self, preallocated: bool) -> Self {
        self.preallocated = preallocated;
        self
    }

    /// Dequantises the weights to this dtype, as [`remember`](crate::remember()) does. Default: as stored.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Tensor parallelism: the number of workers that share each matrix. Default 1.
    #[must_use]
    pub fn tp(mut self, workers: u32) -> Self {
        self.tp = workers;
        self
    }

    /// Pipeline parallelism: the number of stages that the layers are distributed over. Default 1.
    #[must_use]
    pub fn pp(mut self, stages: u32) -> Self {
        self.pp = stages;
        self
    }

    /// Expert parallelism: the number of workers of a stage that whole experts are distributed over. It must divide `tp`.
    /// Default 1.
    #[must_use]
    pub fn ep(mut self, workers: u32) -> Self {
        self.ep = workers;
        self
    }

    /// Bytes of the memory of each worker: the estimate then says whether it fits, and which context and batch do.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Bytes that each worker needs besides, such as buffers of the engine that are not estimated. Default 0.
    #[must_use]
    pub fn overhead(mut self, bytes: u64) -> Self {
        self.overhead = bytes;
        self
    }

    /// Outputs of an encoder, which decoders with cross attention keep once. Default: those that the model was made for.
    #[must_use]
    pub fn encoder_tokens(mut self, tokens: u64) -> Self {
        self.encoder_tokens = Some(tokens);
        self
    }

    /// Tokens that a step computes at most: llama.cpp's `ubatch` (default 512), vLLM's `max_num_batched_tokens` (default
    /// 8192). Windows are kept with room for them.
    #[must_use]
    pub fn step_tokens(mut self, tokens: u64) -> Self {
        self.step_tokens = Some(tokens);
        self
    }

    /// Tokens of a page of vLLM. Default 16.
    #[must_use]
    pub fn block(mut self, tokens: u64) -> Self {
        self.page_tokens = Some(tokens);
        self
    }

    /// llama.cpp: whether all sequences share one cache (`--kv-unified`). Default off.
    #[must_use]
    pub fn unified(mut self, unified: bool) -> Self {
        self.unified_cache = unified;
        self
    }

    /// llama.cpp: whether layers with a window keep all tokens (`--swa-full`). Default off.
    #[must_use]
    pub fn whole_windows(mut self, whole: bool) -> Self {
        self.whole_windows = whole;
        self
    }

    /// vLLM: whether layers with windows have pages of their own. Default on; without it they reserve as all others.
    #[must_use]
    pub fn hybrid_allocator(mut self, on: bool) -> Self {
        self.hybrid_allocator = on;
        self
    }

    /// A draft model, with a cache of its own, divided among the workers of a stage as the model is.
    #[must_use]
    pub fn draft(mut self, model: impl Into<CheckpointHandle<'c>>) -> Self {
        self.extras.push((ExtraRole::Draft, model.into()));
        self
    }

    /// A projector of images or sound; each worker holds all of it.
    #[must_use]
    pub fn projector(mut self, model: impl Into<CheckpointHandle<'c>>) -> Self {
        self.extras.push((ExtraRole::Projector, model.into()));
        self
    }

    /// An adapter; each worker holds all of it.
    #[must_use]
    pub fn adapter(mut self, model: impl Into<CheckpointHandle<'c>>) -> Self {
        self.extras.push((ExtraRole::Adapter, model.into()));
        self
    }
}
