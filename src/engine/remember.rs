//! `remember`: dequantising the weights of a checkpoint.
//!
//! A façade over [`Plan`] and [`Executor`]: it plans with the schemes, then executes the plan into a sink.

mod conv1d;
mod dtype;
mod in_memory;
pub(in crate::engine) mod metadata;
pub(in crate::engine) mod output;
pub(in crate::engine) mod planning;
mod shards;
mod slices;
pub(in crate::engine) mod tied;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::template::parallel::Rules;
use crate::engine::companions::{CompanionContent, CompanionFile, Companions};
use crate::engine::execute::Executor;
use crate::engine::load::Loader;
use crate::engine::sink::{SAFETENSORS, SafetensorsSink, Sharding, Sink};
use crate::models::architectures;
use crate::models::conversion::Names;
use crate::models::parallel::TensorParallel;
use crate::plan::{Plan, TensorSpec};
use crate::quant::scheme::QuantConfig;
use crate::read::checkpoint::CheckpointHandle;
use crate::read::run_options::{RunOptions, run_options};
use crate::read::slice::TensorSlice;

pub use dtype::OutputDtype;
pub use in_memory::Remembered;
pub use shards::MadePart;
use slices::OutputSlices;

/// A function from the name of an output to the name that it is written under.
type Rename<'c> = Arc<dyn Fn(&str) -> String + Send + Sync + 'c>;

/// Dequantises the weights of a checkpoint. Made by [`remember`].
#[derive(Clone)]
pub struct Remember<'c> {
    pub(in crate::engine) checkpoint: CheckpointHandle<'c>,
    dtype: OutputDtype,
    cast: bool,
    native: bool,
    names: Names,
    /// Names of outputs, as they are written.
    only: Option<Arc<HashSet<Box<str>>>>,
    slices: OutputSlices<'c>,
    rename: Option<Rename<'c>>,
    pub(in crate::engine) config: Option<QuantConfig>,
    pub(in crate::engine) overwrite: bool,
    pub(in crate::engine) code: bool,
    pub(in crate::engine) untie: bool,
    /// See [`Self::ignore_unexplained`].
    ignore: bool,
    pub(in crate::engine) loader: Option<Arc<dyn Loader>>,
    pub(in crate::engine) options: RunOptions<'c>,
}

/// Dequantises every weight of a checkpoint, to BF16 unless another [`dtype`](Remember::dtype) is set. Tensors that are
/// not quantised are copied.
///
/// Arithmetic is F32 in the order of the scheme's reference implementation, then one rounding to nearest
/// even. Outputs have the names and shapes that the model has in PyTorch.
///
/// ```
/// use anamnesis::{Checkpoint, Dtype, remember};
///
/// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
/// for spec in remember(&checkpoint).plan()?.jobs.iter().map(|job| &job.output) {
///     println!("{spec}");
/// }
/// let weight = remember(&checkpoint).dtype(Dtype::F32).tensor("blk.0.quant.weight")?;
/// assert_eq!(weight.bytes.len(), 3 * 512 * 4);
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// With an `Arc<Checkpoint>` the builder has no lifetime: see [`CheckpointHandle`].
pub fn remember<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Remember<'c> {
    Remember {
        checkpoint: checkpoint.into(),
        dtype: Dtype::BF16.into(),
        cast: false,
        native: false,
        names: Names::Stored,
        only: None,
        slices: OutputSlices::Whole,
        rename: None,
        config: None,
        overwrite: false,
        code: false,
        untie: false,
        ignore: false,
        loader: None,
        options: RunOptions::default(),
    }
}

run_options!(Remember {
    /// They decode; a [loader](Self::loader) has its own.
    threads,
    /// Outputs of these names are made: the names before [`rename`](Self::rename).
    filter,
    /// In bytes of outputs. Also at least every 100 ms while the run waits.
    progress,
    cancel,
});

impl<'c> Remember<'c> {
    /// The dtype of dequantised weights: `BF16` (the default), `F16` or `F32`, or the checkpoint's own
    /// ([`OutputDtype::Auto`]).
    #[must_use]
    pub fn dtype(mut self, dtype: impl Into<OutputDtype>) -> Self {
        self.dtype = dtype.into();
        self
    }

    /// Whether floating-point tensors that are not quantised are cast to that dtype as well. Default off.
    #[must_use]
    pub fn cast(mut self, cast: bool) -> Self {
        self.cast = cast;
        self
    }

    /// Whether HQQ, MLX and quanto weights are rounded as their references do, after each operation to the dtype of their
    /// scales, instead of once at the end. Default off.
    #[must_use]
    pub fn native_rounding(mut self, native: bool) -> Self {
        self.native = native;
        self
    }

    /// Which names the outputs of a GGUF have. Default [`Names::Stored`].
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Which part of each output is made, by its name (before [`rename`](Self::rename)), shape and dtype. The elements are
    /// taken from the whole output. A slice may begin inside of a block. For a slice of rows the stored bytes of these rows
    /// are read, to the next unit that a scheme decodes at once (for GPTQ and AWQ 32 rows); for a slice of columns the
    /// blocks of a GGUF that contain them, and whole rows of other schemes. Tensors that are inflated or gathered are read
    /// whole. Replaces what [`tensor_parallel`](Self::tensor_parallel) has set.
    ///
    /// ```
    /// use anamnesis::slice::TensorSlice;
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
    /// // blocks have 256 columns
    /// let columns = TensorSlice::Range { axis: 1, range: 100..300 };
    /// let part = remember(&checkpoint)
    ///     .slice(move |_| columns.clone())
    ///     .tensor("blk.0.quant.weight")?;
    /// assert_eq!((&part.spec.shape[..], part.bytes.len()), (&[3, 200][..], 3 * 200 * 2));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// The [plan](Self::plan) fails if an output has no such slice.
    #[must_use]
    pub fn slice(mut self, slice: impl Fn(&TensorSpec) -> TensorSlice + Send + Sync + 'c) -> Self {
        self.slices = OutputSlices::One(Arc::new(slice));
        self
    }

    /// Makes the share of worker `rank` of `of` in each output, by the rules that [`predict`](crate::predict()) uses, and
    /// with the numbers of heads in the model's configuration. Shares tensors as
    /// [`Load::tensor_parallel`](crate::Load::tensor_parallel) does with stored ones, except that outputs have no blocks, so
    /// that shares are as even as elements allow.
    ///
    /// ```
    /// use anamnesis::template::parallel::{Rule, Rules};
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
    /// let mut rules = Rules::default();
    /// rules.put_first("*.quant.weight", Rule::Row);
    /// let share = remember(&checkpoint).tensor_parallel(0, 2, &rules).tensor("blk.0.quant.weight")?;
    /// assert_eq!(&share.spec.shape[..], [3, 256]);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn tensor_parallel(mut self, rank: u32, of: u32, rules: &Rules) -> Self {
        self.slices = OutputSlices::Parallel(Arc::new(TensorParallel::new(rank, of, rules)));
        self
    }

    /// Writes outputs under the names that this returns for their own. [`filter`](Self::filter) and
    /// [`tensor`](Self::tensor) use the names before. Two outputs that get one name are refused.
    #[must_use]
    pub fn rename(mut self, rename: impl Fn(&str) -> String + Send + Sync + 'c) -> Self {
        self.rename = Some(Arc::new(rename));
        self
    }

    /// Uses this configuration instead of the one in the checkpoint's directory.
    #[must_use]
    pub fn config(mut self, config: QuantConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Reads stored bytes with this loader, ahead of the threads that decode: for files that are not in the page cache.
    /// Without a loader they are borrowed from the mapped file, or read tile by tile. The outputs are the same.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// Whether existing files are replaced. Default off.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether Python files of the source's directory are copied to an output directory. Default off: they are code that
    /// clients run.
    #[must_use]
    pub fn code(mut self, code: bool) -> Self {
        self.code = code;
        self
    }

    /// Whether an output layer that shares the weight of the input embedding is written as well. Default off: where
    /// the checkpoint's `config.json` ties them, or its class does by default, clients restore the one from the other.
    /// A file has it, also without this: see [`for_output`](Self::for_output).
    #[must_use]
    pub fn untie(mut self, untie: bool) -> Self {
        self.untie = untie;
        self
    }

    /// Prepares the plan for such an output. No client has a configuration beside a file, by which it restores an output layer, so that a
    /// file gets it as with [`untie`](Self::untie). [`to_file`](Self::to_file) does this by itself.
    #[must_use]
    pub fn for_output(self, sharding: &Sharding) -> Self {
        let untie = self.untie || *sharding == Sharding::SingleFile;
        self.untie(untie)
    }

    /// Ignores what is not known about stored weights, as for a checkpoint that is opened with
    /// [`OpenOptions::assume_plain`](crate::OpenOptions::assume_plain).
    #[must_use]
    pub(crate) fn ignore_unexplained(mut self) -> Self {
        self.ignore = true;
        self
    }

    /// The dtype of dequantised weights, also where [`OutputDtype::Auto`] is set.
    ///
    /// # Errors
    /// A configuration that cannot be read.
    pub fn output_dtype(&self) -> Result<Dtype> {
        match self.dtype {
            OutputDtype::Of(dtype) => Ok(dtype),
            OutputDtype::Auto | OutputDtype::Stored => {
                // read only here: an explicit dtype needs no configuration
                let config = planning::config(self, &self.checkpoint.budget())?;
                self.dtype.resolve(self.checkpoint.catalog(), &config)
            }
        }
    }

    /// The files that [`to_dir`](Self::to_dir) writes beside the tensors: configuration, tokenizer, chat template. The files
    /// of a GGUF are made from its metadata, if its outputs have the names of [`Names::HuggingFace`].
    ///
    /// # Errors
    /// I/O; a `config.json` that is not a JSON object, or is over a limit; metadata that lacks a value which every model of
    /// the architecture has.
    pub fn companions(&self) -> Result<Companions> {
        let dtype = self.output_dtype()?;
        let quantised = planning::stays_quantised(self, &self.checkpoint.budget())?;
        let mut companions = Companions::of(&self.checkpoint, dtype, quantised, self.code)?;
        if self.names == Names::HuggingFace {
            let made = architectures::files(&self.checkpoint, dtype, &self.checkpoint.budget())?;
            let made = made.into_iter().map(|(name, bytes)| CompanionFile {
                name,
                content: CompanionContent::Bytes(bytes),
            });
            companions.files.extend(made);
        }
        Ok(companions)
    }

    /// The plan that would be executed. Needs the catalog, the configuration in the checkpoint's directory, and stored
    /// descriptors of a few bytes each.
    ///
    /// # Errors
    /// I/O errors; a configuration that is not JSON; an unsupported output dtype; a [`slice`](Self::slice) that an output does
    /// not have; cancellation; a plan over
    /// [`Limits::memory`](crate::Limits::memory) or [`Limits::steps`](crate::Limits::steps). Weights that cannot be made are
    /// no error, but listed in [`Plan::refused`].
    pub fn plan(&self) -> Result<Plan> {
        self.plan_within(&self.checkpoint.budget())
    }

    /// Like [`plan`](Self::plan), charged to a budget of which the checkpoint's own memory is spent.
    pub(crate) fn plan_within(&self, budget: &Budget) -> Result<Plan> {
        planning::plan(self, budget)
    }

    /// Executes a plan of [`plan`](Self::plan) into a sink.
    ///
    /// # Errors
    /// The errors of [`Plan::check`] and [`Executor::run`].
    pub fn run(&self, plan: &Plan, sink: &mut dyn Sink) -> Result<()> {
        // a refused weight ends the run before anything is written: an output without one of its weights looks
        // complete
        plan.check()?;
        sink.identify(&|| plan.id(self.checkpoint.catalog()));
        let mut executor = Executor::new(&self.checkpoint, plan).threads(self.options.threads);
        if let Some(loader) = &self.loader {
            executor = executor.loader(Arc::clone(loader));
        }
        executor.run_with(&self.options.control, sink)
    }

    /// Writes one safetensors file, which appears under its name when it is complete. With the feature `remote`, the path may be
    /// the URL of an object in a bucket (`s3://`, `gs://`, `az://`, `abfss://`), which is uploaded in parts.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and one if the file cannot be written, or is one of the source's.
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), Sharding::SingleFile)
    }

    /// Writes a checkpoint: a directory of safetensors files of at most `shard_bytes` bytes of tensors each, their index,
    /// and the [`companions`](Self::companions) of the source, so that clients open it as they open the source. The path may be a
    /// URL as for [`to_file`](Self::to_file): the index is then written last, when all other objects are there.
    ///
    /// # Errors
    /// The errors of [`to_file`](Self::to_file) and [`companions`](Self::companions).
    pub fn to_dir(&self, path: impl AsRef<Path>, shard_bytes: u64) -> Result<()> {
        self.write(path.as_ref(), Sharding::Shards(shard_bytes))
    }

    /// Whether `path` is written as a file or as a directory, and with which size of shards, if the caller has set none.
    ///
    /// A path is a directory if it ends in a separator, exists as one, or if `shard_bytes` is set; also if the source is a
    /// directory or several files and the path does not end in `.safetensors`. Shards have 5 GB then.
    ///
    /// # Errors
    /// If the path has the ending of another format.
    pub fn sharding(&self, path: impl AsRef<Path>, shard_bytes: Option<u64>) -> Result<Sharding> {
        output::sharding(
            &self.checkpoint,
            path.as_ref(),
            shard_bytes,
            Some(&SAFETENSORS),
        )
    }

    fn write(&self, path: &Path, sharding: Sharding) -> Result<()> {
        let plan = self.clone().for_output(&sharding).plan()?;
        let mut sink = self.safetensors(path, sharding)?;
        self.run(&plan, &mut sink)
    }

    /// The sink that [`to_file`](Self::to_file) and [`to_dir`](Self::to_dir) write to, with the checkpoint's metadata.
    ///
    /// # Errors
    /// The metadata or the companion files cannot be read, or the path is the source's, inside it, or a link to it.
    pub fn safetensors(
        &self,
        path: impl AsRef<Path>,
        sharding: Sharding,
    ) -> Result<SafetensorsSink> {
        let path = path.as_ref();
        output::check_not_source(&self.checkpoint, path, &sharding)?;
        let companions = match sharding {
            Sharding::Shards(_) => self.companions()?,
            Sharding::SingleFile => Companions::default(),
        };
        // read before the sink is made: arrays of a GGUF are still in the file
        let metadata = metadata::safetensors_metadata(
            &self.checkpoint,
            self.names,
            Some(self.output_dtype()?),
        )?;
        Ok(SafetensorsSink::new(path, sharding)
            .overwrite(self.overwrite)
            .file_stem(output::file_stem(&self.checkpoint))
            .companions(companions)
            .metadata(metadata))
    }
}

impl std::fmt::Debug for Remember<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remember")
            .field("dtype", &self.dtype)
            .field("threads", &self.options.threads)
            .finish_non_exhaustive()
    }
}
