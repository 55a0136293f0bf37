//! `convert`: copying tensors as they are stored, between containers, files and names.
//!
//! It shares the engine of `remember`: a plan, the executor, a sink of files. The jobs of the plan copy; the parts of a quantised
//! weight stay together, and the plans of output and source are compared before a byte is written.

mod header;
mod notes;
mod planning;
mod refused_parts;
mod shares;
mod united;
mod weight_parts;
mod written_plan;

pub(in crate::engine) use header::gguf_values;
pub(in crate::engine) use notes::without_architecture;

use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::note::Note;
use crate::base::template::parallel::Rules;
use crate::engine::companions::Companions;
use crate::engine::load::Loader;
use crate::engine::remember::{OutputDtype, Remember, output, remember};
use crate::engine::sink::container::{FormOptions, HeaderValue};
use crate::engine::sink::{Container, FileSink, GGUF, SAFETENSORS, Sharding, Sink};
use crate::models::parallel::TensorParallel;
use crate::plan::Plan;
use crate::quant::scheme::QuantConfig;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::rename::{Rename, RenamedTensors, Renames};
use crate::read::run_options::run_options;
use header::MetadataChange;

type ExcludedNames<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;

/// Copies tensors as they are stored. Made by [`convert`].
#[derive(Clone)]
pub struct Convert<'c> {
    /// How weights are made where they are not copied, and everything about the run.
    weights: Remember<'c>,
    is_stored: bool,
    exclude: Option<ExcludedNames<'c>>,
    renames: Vec<Rename>,
    container: Option<&'static Container>,
    metadata: Vec<MetadataChange>,
    void: bool,
    alignment: Option<u32>,
    /// The worker whose share of copied tensors is written.
    parallel: Option<Arc<TensorParallel>>,
}

/// Copies the tensors of a checkpoint **as they are stored**: merges, splits, renames, leaves out, or writes another container.
/// Nothing is dequantised unless a [`dtype`](Convert::dtype) is set, which makes the weights that [`remember`](crate::remember())
/// makes.
///
/// ```
/// use anamnesis::{Checkpoint, convert};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-convert-{}.safetensors", std::process::id()));
/// let sharded = Checkpoint::open("fixtures/safetensors/sharded")?;
/// convert(&sharded).rename("model", "net.model").to_file(&path)?;
/// let merged = Checkpoint::open(&path)?;
/// assert_eq!(merged.tensors().len(), sharded.tensors().len());
/// assert!(merged.tensor("net.model.embed_tokens.weight").is_some());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// The stored parts of a quantised weight go together. With an `Arc<Checkpoint>` the builder has no lifetime: see
/// [`CheckpointHandle`].
pub fn convert<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Convert<'c> {
    Convert {
        weights: remember(checkpoint),
        is_stored: true,
        exclude: None,
        renames: Vec::new(),
        container: None,
        metadata: Vec::new(),
        void: false,
        alignment: None,
        parallel: None,
    }
}

run_options!(Convert [weights.options] {
    /// They copy; a [loader](Self::loader) has its own.
    threads,
    /// A weight is copied, with all of its stored parts, if its own name or the name of a part is accepted: the names before
    /// [`rename`](Self::rename).
    filter,
    /// In bytes of outputs. Also at least every 100 ms while the run waits.
    progress,
    cancel,
});

impl<'c> Convert<'c> {
    /// The dtype of weights. Default [`OutputDtype::Stored`]: they are copied. Another one dequantises quantised weights.
    #[must_use]
    pub fn dtype(mut self, dtype: impl Into<OutputDtype>) -> Self {
        let dtype = dtype.into();
        self.is_stored = dtype == OutputDtype::Stored;
        if !self.is_stored {
            self.weights = self.weights.dtype(dtype);
        }
        self
    }

    /// Whether floating-point tensors that are not quantised are cast to that dtype as well. Default off.
    #[must_use]
    pub fn cast(mut self, cast: bool) -> Self {
        self.weights = self.weights.cast(cast);
        self
    }

    /// Leaves out names that this accepts: weights with all of their parts. A name of some parts of a weight alone is refused
    /// by [`plan`](Self::plan).
    #[must_use]
    pub fn exclude(mut self, leave: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.exclude = Some(Arc::new(leave));
        self
    }

    /// Renames tensors: see [`Rename`]. Renames are applied in the order in which they are set. One that is for no tensor is an
    /// error, and so is a name that two tensors would have.
    #[must_use]
    pub fn rename(self, from: &str, to: &str) -> Self {
        self.rename_by(Rename::new(from, to))
    }

    /// Renames tensors by this rule.
    #[must_use]
    pub(crate) fn rename_by(mut self, rename: Rename) -> Self {
        self.renames.push(rename);
        self
    }

    /// Writes the share of worker `rank` of `of` of each tensor, as [`Load::tensor_parallel`](crate::Load::tensor_parallel) loads
    /// it. A stored weight is cut between units of all of its parts; one whose share would begin inside of a block, or whose
    /// parts are not known to be divisible, is refused by [`plan`](Self::plan).
    ///
    /// ```
    /// use anamnesis::template::parallel::Rules;
    /// use anamnesis::{Checkpoint, convert};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let plan = convert(&checkpoint).tensor_parallel(0, 2, &Rules::default()).plan()?;
    /// assert!(plan.nbytes() < checkpoint.catalog().nbytes());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn tensor_parallel(mut self, rank: u32, of: u32, rules: &Rules) -> Self {
        self.parallel = Some(Arc::new(TensorParallel::new(rank, of, rules)));
        self.weights = self.weights.tensor_parallel(rank, of, rules);
        self
    }

    /// The container of the output. By default the ending of a file's name decides; of a directory, the format of the source.
    #[must_use]
    pub fn container(mut self, container: &'static Container) -> Self {
        self.container = Some(container);
        self
    }

    /// Sets a key of the metadata. A text that is set for a key of a GGUF is read as a value of the type that the key has.
    ///
    /// ```
    /// use anamnesis::sink::{GGUF, GgufType, GgufValue};
    /// use anamnesis::{Checkpoint, convert};
    ///
    /// # let path = std::env::temp_dir().join(format!("anamnesis-keys-{}.gguf", std::process::id()));
    /// let checkpoint = Checkpoint::open("fixtures/gguf/plain_v3.gguf")?;
    /// convert(&checkpoint)
    ///     .metadata("my.name", "net")
    ///     .metadata("my.size", GgufValue::parse(GgufType::U64, "12")?)
    ///     .to_file(&path)?;
    /// let written = Checkpoint::open(&path)?;
    /// assert_eq!(written.catalog().metadata().integer("my.size"), Some(12));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl Into<HeaderValue>) -> Self {
        self.metadata
            .push(MetadataChange::Set(key.to_owned(), value.into()));
        self
    }

    /// Leaves a key of the metadata out. A key that is not there is an error.
    #[must_use]
    pub fn drop_metadata(mut self, key: &str) -> Self {
        self.metadata.push(MetadataChange::Drop(key.to_owned()));
        self
    }

    /// Gives a key of the metadata another name.
    #[must_use]
    pub(crate) fn rename_metadata(mut self, from: &str, to: &str) -> Self {
        let change = MetadataChange::Rename(from.to_owned(), to.to_owned());
        self.metadata.push(change);
        self
    }

    /// Whether floats that NumPy does not have (BF16, FP8) are written to NPY and NPZ as items without a type, as ml_dtypes
    /// does. Default off: they are refused.
    #[must_use]
    pub fn void(mut self, void: bool) -> Self {
        self.void = void;
        self
    }

    /// The alignment of tensors in a GGUF, in bytes: a power of two. Default as in the source, or 32.
    #[must_use]
    pub fn alignment(mut self, bytes: u32) -> Self {
        self.alignment = Some(bytes);
        self
    }

    /// Uses this configuration instead of the one in the checkpoint's directory.
    #[must_use]
    pub fn config(mut self, config: QuantConfig) -> Self {
        self.weights = self.weights.config(config);
        self
    }

    /// Reads stored bytes with this loader: see [`Remember::loader`].
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.weights = self.weights.loader(loader);
        self
    }

    /// Whether existing files are replaced. Default off.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.weights = self.weights.overwrite(overwrite);
        self
    }

    /// Whether Python files of the source's directory are copied to an output directory. Default off.
    #[must_use]
    pub fn code(mut self, code: bool) -> Self {
        self.weights = self.weights.code(code);
        self
    }

    /// Whether an output layer that shares the weight of the input embedding is written to a directory as well: see
    /// [`Remember::untie`]. A file has every tensor.
    #[must_use]
    pub fn untie(mut self, untie: bool) -> Self {
        self.weights = self.weights.untie(untie);
        self
    }

    /// Prepares the plan for such an output: see [`Remember::for_output`].
    #[must_use]
    pub fn for_output(mut self, sharding: &Sharding) -> Self {
        self.weights = self.weights.for_output(sharding);
        self
    }

    /// The plan that would be executed: one job for each stored tensor, or for each weight with another
    /// [`dtype`](Self::dtype).
    ///
    /// # Errors
    /// The errors of [`Remember::plan`]; a part of a weight that is left out alone; a [`rename`](Self::rename) that is for no
    /// tensor, or after which the parts of a weight are no weight.
    pub fn plan(&self) -> Result<Plan> {
        self.renames.iter().try_for_each(Rename::check)?;
        let renames = Renames::new(&self.renames);
        let plan = match self.is_stored {
            true => planning::stored(self, &renames)?,
            false => planning::dequantised(self, &renames)?,
        };
        renames.check_used()?;
        Ok(plan)
    }

    /// Executes a plan of [`plan`](Self::plan) into a sink.
    ///
    /// # Errors
    /// The errors of [`Remember::run`].
    pub fn run(&self, plan: &Plan, sink: &mut dyn Sink) -> Result<()> {
        self.weights.run(plan, sink)
    }

    /// Whether `path` is written as a file or as a directory: as [`Remember::sharding`], with the endings of all containers.
    ///
    /// # Errors
    /// If the path has the ending of another format, or of another container than the one that was set.
    pub fn sharding(&self, path: impl AsRef<Path>, shard_bytes: Option<u64>) -> Result<Sharding> {
        if shard_bytes == Some(0) {
            return Err(Error::invalid_argument("shards of 0 bytes hold no tensor"));
        }
        let checkpoint = &self.weights.checkpoint;
        output::sharding(checkpoint, path.as_ref(), shard_bytes, self.container)
    }

    /// The container of an output of this path: the one that was [set](Self::container), the one of the path's ending, or of a
    /// directory the format of the source.
    ///
    /// ```
    /// use anamnesis::sink::{GGUF, Sharding};
    /// use anamnesis::{Checkpoint, convert};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// assert_eq!(*convert(&checkpoint).container_for("m.gguf", &Sharding::SingleFile), GGUF);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn container_for(&self, path: impl AsRef<Path>, sharding: &Sharding) -> &'static Container {
        if let Some(container) = self.container {
            return container;
        }
        let extension = path.as_ref().extension().and_then(|end| end.to_str());
        let named = extension.filter(|_| *sharding == Sharding::SingleFile);
        let named = named.and_then(Container::for_extension);
        // names of containers are names of formats
        let of_source = || Container::for_extension(self.weights.checkpoint.catalog().format());
        named.or_else(of_source).unwrap_or(&SAFETENSORS)
    }

    /// The sink that [`to_file`](Self::to_file) and [`to_dir`](Self::to_dir) write to, with metadata and companion files.
    ///
    /// # Errors
    /// The metadata or the companion files cannot be read or changed, or the path is the source's, inside it, or a link to it.
    pub fn sink(&self, path: impl AsRef<Path>, sharding: Sharding) -> Result<FileSink> {
        let path = path.as_ref();
        let checkpoint = &self.weights.checkpoint;
        output::check_not_source(checkpoint, path, &sharding)?;
        let container = self.container_for(path, &sharding);
        if self.alignment.is_some() && *container != GGUF {
            let what = format!(
                "{} has no alignment of tensors: it is a setting of GGUF",
                container.name
            );
            return Err(Error::invalid_argument(what));
        }
        let companions = match sharding {
            Sharding::Shards(_) => self.companions()?,
            Sharding::SingleFile => Companions::default(),
        };
        let values = header::values(self, container)?;
        let options = FormOptions {
            room: true,
            void: self.void,
            alignment: header::alignment(self, &values)?,
            // the header of a copy has `format` at least
            empty_metadata: false,
        };
        Ok(FileSink::new(path, sharding)
            .container(container)
            .form_options(options)
            .overwrite(self.weights.overwrite)
            .file_stem(output::file_stem(checkpoint))
            .companions(companions)
            .header_values(values))
    }

    /// Notes for users of the output: metadata that the container does not have, a scheme that is not recognised in a file
    /// without the configuration of its directory.
    ///
    /// ```
    /// use anamnesis::sink::Sharding;
    /// use anamnesis::{Checkpoint, convert};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// for note in convert(&checkpoint).notes("model.gguf", &Sharding::SingleFile)? {
    ///     println!("note: {note}");
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sink`](Self::sink).
    pub fn notes(&self, path: impl AsRef<Path>, sharding: &Sharding) -> Result<Vec<Note>> {
        notes::of(self, self.container_for(path.as_ref(), sharding), sharding)
    }

    /// The files that [`to_dir`](Self::to_dir) writes beside the tensors: configuration and tokenizer of the source, with the new
    /// names of tensors and modules.
    ///
    /// # Errors
    /// The errors of [`Remember::companions`].
    pub fn companions(&self) -> Result<Companions> {
        if !self.is_stored {
            return self.weights.companions();
        }
        let renames = Renames::new(&self.renames);
        let renamed = self.renamed_tensors(&renames);
        Companions::of_stored(&self.weights.checkpoint, &renamed, self.weights.code)
    }

    /// The new names of the source's tensors.
    fn renamed_tensors<'r>(&'r self, renames: &'r Renames) -> RenamedTensors<'r> {
        let tensors = self.weights.checkpoint.catalog().tensors();
        RenamedTensors::new(tensors.iter().map(|info| &*info.name), renames)
    }

    /// Writes one file, which appears under its name when it is complete. The path may be the URL of an object in a bucket, as for
    /// [`Remember::to_file`].
    ///
    /// # Errors
    /// The errors of [`plan`](Self::plan), [`sink`](Self::sink) and [`run`](Self::run); a tensor that the container cannot
    /// have, by name.
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), Sharding::SingleFile)
    }

    /// Writes a directory of files of at most `shard_bytes` bytes of tensors each, and the [`companions`](Self::companions) of
    /// the source: safetensors and their index, or a split GGUF.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, convert};
    ///
    /// # let path = std::env::temp_dir().join(format!("anamnesis-split-{}", std::process::id()));
    /// let model = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
    /// convert(&model).to_dir(&path, 1 << 20)?;
    /// let split = Checkpoint::open(&path)?;
    /// assert_eq!(split.tensors().len(), model.tensors().len());
    /// # std::fs::remove_dir_all(&path)?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`to_file`](Self::to_file).
    pub fn to_dir(&self, path: impl AsRef<Path>, shard_bytes: u64) -> Result<()> {
        self.write(path.as_ref(), Sharding::Shards(shard_bytes))
    }

    fn write(&self, path: &Path, sharding: Sharding) -> Result<()> {
        if sharding == Sharding::Shards(0) {
            return Err(Error::invalid_argument("shards of 0 bytes hold no tensor"));
        }
        let plan = self.clone().for_output(&sharding).plan()?;
        let mut sink = self.sink(path, sharding)?;
        self.run(&plan, &mut sink)
    }

    /// The dtype of dequantised weights; `None` where they are copied.
    ///
    /// # Errors
    /// A configuration that cannot be read.
    pub fn output_dtype(&self) -> Result<Option<Dtype>> {
        match self.is_stored {
            true => Ok(None),
            false => self.weights.output_dtype().map(Some),
        }
    }

    /// Whether `exclude` leaves this name out.
    fn excludes(&self, name: &str) -> bool {
        self.exclude.as_ref().is_some_and(|leave| leave(name))
    }
}

impl std::fmt::Debug for Convert<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convert")
            .field("is_stored", &self.is_stored)
            .field("renames", &self.renames)
            .finish_non_exhaustive()
    }
}

/// Whether a refusal is of a scheme that has recognised a weight and cannot decode it, unlike one of tensors that may be data.
fn is_recognised(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Unexplained(_))
}
