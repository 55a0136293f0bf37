//! `quantise`: a GGUF whose weights have another type of blocks, byte for byte as llama.cpp's `llama-quantize` writes it.
//!
//! It shares the engine of `remember`: a plan, the executor, a sink of files. The jobs of the plan decode rows to F32 and encode them,
//! a tile at a time, so that memory does not grow with the model.
//!
//! Source: `src/llama-quant.cpp` of llama.cpp (commit 86a2835).

mod converted;
mod importance;
mod keys;
mod planning;
mod source_tensors;
mod type_patterns;

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::engine::load::Loader;
use crate::engine::remember::{Remember, output, remember};
use crate::engine::sink::container::FormOptions;
use crate::engine::sink::{FileSink, GGUF, GgufValue, Sharding, Sink};
use crate::models::gguf_types::{layer_of, tensor_type};
use crate::plan::Plan;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::format::gguf::FileType;
use crate::read::run_options::run_options;

use converted::ConvertedModel;
pub use importance::ImportanceMatrix;
use keys::Keys;

/// Quantises a GGUF. Made by [`quantise`].
#[derive(Clone)]
pub struct Quantise<'c> {
    /// Everything about the run.
    weights: Remember<'c>,
    /// `None` if every tensor keeps its type.
    file_type: Option<&'static FileType>,
    pure: bool,
    leave_output: bool,
    requantise: bool,
    token_embedding: Option<&'static str>,
    output: Option<&'static str>,
    /// Patterns of names, in lower case, and types.
    of_names: Vec<(String, &'static str)>,
    /// Layers that are left out.
    pruned: BTreeSet<u64>,
    /// Keys that are set, in order.
    metadata: Vec<(String, GgufValue)>,
    importance: Option<ImportanceMatrix>,
    keep_split: bool,
    /// The float between a Hugging Face checkpoint and the blocks.
    via: Option<Dtype>,
    /// The name of the steps before a byte-level tokenizer.
    pre_tokenizer: Option<String>,
}

/// Makes a GGUF of another [`FileType`] of a GGUF: the same bytes as llama.cpp's `llama-quantize` on x86-64 writes.
///
/// ```
/// use anamnesis::{Checkpoint, FileType, quantise};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-quantised-{}.gguf", std::process::id()));
/// let model = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
/// let q4_0 = FileType::from_name("q4_0").expect("a file type");
/// quantise(&model, q4_0).requantise(true).to_file(&path)?;
/// let written = Checkpoint::open(&path)?;
/// assert_eq!(written.catalog().metadata().integer("general.file_type"), Some(2));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// Values that are infinite or no numbers, and numbers that a type cannot have, are refused before the output appears. With an
/// `Arc<Checkpoint>` the builder has no lifetime: see [`CheckpointHandle`].
pub fn quantise<'c>(
    checkpoint: impl Into<CheckpointHandle<'c>>,
    file_type: impl Into<Option<&'static FileType>>,
) -> Quantise<'c> {
    Quantise {
        weights: remember(checkpoint),
        file_type: file_type.into(),
        pure: false,
        leave_output: false,
        requantise: false,
        token_embedding: None,
        output: None,
        of_names: Vec::new(),
        pruned: BTreeSet::new(),
        metadata: Vec::new(),
        importance: None,
        keep_split: false,
        via: None,
        pre_tokenizer: None,
    }
}

run_options!(Quantise [weights.options] {
    /// They decode and encode; a [loader](Self::loader) has its own.
    threads,
    /// In bytes of outputs. Also at least every 100 ms while the run waits.
    progress,
    cancel,
});

impl<'c> Quantise<'c> {
    /// How much each column matters. Types below three bits need it.
    #[must_use]
    pub fn importance(mut self, importance: ImportanceMatrix) -> Self {
        self.importance = Some(importance);
        self
    }

    /// Whether all weights get the one type of the file, without its mixture. Default off.
    #[must_use]
    pub fn pure(mut self, pure: bool) -> Self {
        self.pure = pure;
        self
    }

    /// Whether `output.weight` keeps its type. Default off.
    #[must_use]
    pub fn leave_output(mut self, leave: bool) -> Self {
        self.leave_output = leave;
        self
    }

    /// Whether weights that are quantised already are quantised again: what they have lost stays lost. Default off: they are
    /// refused.
    #[must_use]
    pub fn requantise(mut self, requantise: bool) -> Self {
        self.requantise = requantise;
        self
    }

    /// The type of the input embedding, by ggml's name.
    ///
    /// # Errors
    /// If ggml quantises to no type of this name.
    pub fn token_embedding_type(mut self, kind: &str) -> Result<Self> {
        self.token_embedding = Some(tensor_type(kind)?);
        Ok(self)
    }

    /// The type of the output layer, by ggml's name.
    ///
    /// # Errors
    /// If ggml quantises to no type of this name.
    pub fn output_type(mut self, kind: &str) -> Result<Self> {
        self.output = Some(tensor_type(kind)?);
        Ok(self)
    }

    /// The type of the tensors in whose names a regular expression is found; the first one decides. It is read in lower case. A plan
    /// has a note about one that decides for no tensor.
    ///
    /// # Errors
    /// If ggml quantises to no type of this name.
    pub fn type_of(mut self, pattern: &str, kind: &str) -> Result<Self> {
        let row = (pattern.to_lowercase(), tensor_type(kind)?);
        self.of_names.push(row);
        Ok(self)
    }

    /// Leaves out layers, by their numbers from 0. The ones behind them are numbered without gaps.
    #[must_use]
    pub fn prune_layers(mut self, layers: impl IntoIterator<Item = u64>) -> Self {
        self.pruned.extend(layers);
        self
    }

    /// Sets a key of the metadata, which is then the last one.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: GgufValue) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Whether a GGUF in several files becomes as many files, with the same tensors each: for `OUT.gguf`,
    /// `OUT-00001-of-0000N.gguf` and so on. Default off.
    #[must_use]
    pub fn keep_split(mut self, keep: bool) -> Self {
        self.keep_split = keep;
        self
    }

    /// The float that weights of a Hugging Face checkpoint are rounded to before they are quantised: F32, F16 or BF16. Default: the
    /// one that its first matrix of BF16 or F16 has, or F16.
    ///
    /// # Errors
    /// Any other dtype.
    pub fn via(mut self, dtype: Dtype) -> Result<Self> {
        if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            let text = format!("weights go through F32, F16 or BF16, not {dtype}");
            return Err(Error::invalid_argument(text));
        }
        self.via = Some(dtype);
        Ok(self)
    }

    /// llama.cpp's name of the steps before the byte-level tokenizer of a Hugging Face checkpoint (`tokenizer.ggml.pre`), such as
    /// `qwen2`. Default: recognised by the steps in its `tokenizer.json`.
    #[must_use]
    pub fn pre_tokenizer(mut self, name: &str) -> Self {
        self.pre_tokenizer = Some(name.to_owned());
        self
    }

    /// Reads stored bytes with this loader: see [`Remember::loader`].
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.weights = self.weights.loader(loader);
        self
    }

    /// Whether an existing file is replaced. Default off.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.weights = self.weights.overwrite(overwrite);
        self
    }

    /// The plan that would be executed: one job for each tensor, in the order of the output.
    ///
    /// # Errors
    /// A source that is no GGUF; a pattern of [`type_of`](Self::type_of) that is not understood. Tensors that cannot be made are listed in [`Plan::refused`].
    pub fn plan(&self) -> Result<Plan> {
        planning::plan(self)
    }

    /// Executes a plan of [`plan`](Self::plan) into a sink.
    ///
    /// # Errors
    /// The errors of [`Remember::run`]; a value that is infinite, no number, or too large for its type.
    pub fn run(&self, plan: &Plan, sink: &mut dyn Sink) -> Result<()> {
        self.weights.run(plan, sink)
    }

    /// The sink that [`to_file`](Self::to_file) writes to, with the metadata.
    ///
    /// # Errors
    /// The metadata cannot be read, or the path is the source's, or a link to it.
    pub fn sink(&self, path: impl AsRef<Path>) -> Result<FileSink> {
        let (path, checkpoint) = (path.as_ref(), &self.weights.checkpoint);
        output::check_not_source(checkpoint, path, &Sharding::SingleFile)?;
        let budget = checkpoint.budget();
        let values = match ConvertedModel::of(self, &budget)? {
            Some(model) => {
                let keys = model.all_keys(self, &budget)?;
                Keys::of_converted(self, keys, &model).values
            }
            None => Keys::of(self, &budget)?.values,
        };
        let options = FormOptions {
            alignment: keys::alignment(&values),
            ..FormOptions::default()
        };
        let counts = source_tensors::counts_of_files(self)?;
        let sink = match (counts.len(), path.file_stem()) {
            (2.., Some(stem)) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                let folder = match folder.as_os_str().is_empty() {
                    true => Path::new("."),
                    false => folder,
                };
                FileSink::new(folder, Sharding::Shards(u64::MAX))
                    .file_stem(stem.to_string_lossy())
                    .outputs_of_files(counts)
            }
            _ => FileSink::new(path, Sharding::SingleFile),
        };
        Ok(sink
            .container(&GGUF)
            .form_options(options)
            .overwrite(self.weights.overwrite)
            .header_values(values))
    }

    /// Writes one GGUF, which appears under its name when it is complete.
    ///
    /// # Errors
    /// The errors of [`plan`](Self::plan), [`sink`](Self::sink) and [`run`](Self::run).
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let plan = self.plan()?;
        let mut sink = self.sink(path)?;
        self.run(&plan, &mut sink)
    }

    /// The name of a tensor in the output; `None` if its layer is left out.
    fn kept_name(&self, name: &str) -> Option<String> {
        let layer = layer_of(name).filter(|_| !self.pruned.is_empty());
        let Some(layer) = layer else {
            return Some(name.to_owned());
        };
        if self.pruned.contains(&layer) {
            return None;
        }
        let in_front = self.pruned.range(..layer).count() as u64;
        let (_, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        Some(format!("blk.{}.{rest}", layer - in_front))
    }

    /// Whether there is an option of the quantiser, which a converter's file would not show.
    fn asks_quantiser(&self) -> bool {
        self.pure
            || self.leave_output
            || self.token_embedding.is_some()
            || self.output.is_some()
            || !self.of_names.is_empty()
            || !self.pruned.is_empty()
            || !self.metadata.is_empty()
            || self.importance.is_some()
    }

    /// A number that is set under one of these keys of an architecture.
    fn set_number(&self, architecture: &str, keys: &[&str]) -> Option<u64> {
        let is_key = |key: &str| {
            let own = key.strip_prefix(architecture)?.strip_prefix('.')?;
            keys.contains(&own).then_some(())
        };
        let mut set = self.metadata.iter().rev();
        let found = set.find(|(key, _)| is_key(key).is_some())?;
        found.1.as_u32().map(u64::from)
    }

    /// The number of the file type that most tensors have, as llama.cpp guesses it.
    fn guessed_type(&self) -> u32 {
        let mut counts: Vec<(String, usize)> = Vec::new();
        let (mut most, mut of_most) = (String::new(), 0);
        for info in self.weights.checkpoint.catalog().tensors() {
            let kind = info.encoding.to_string();
            let at = counts.iter().position(|(known, _)| *known == kind);
            let at = at.unwrap_or_else(|| {
                counts.push((kind.clone(), 0));
                counts.len() - 1
            });
            counts[at].1 += 1;
            if counts[at].1 > of_most {
                (most, of_most) = (kind, counts[at].1);
            }
        }
        FileType::of_most(&most).map_or(0, |file_type| file_type.number)
    }
}

impl std::fmt::Debug for Quantise<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quantise")
            .field("file_type", &self.file_type.map(|file_type| file_type.name))
            .field("pure", &self.pure)
            .finish_non_exhaustive()
    }
}
