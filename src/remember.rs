//! `remember`: every quantised weight back to full precision.
//!
//! A façade over [`Plan`] and [`execute`]: it plans with the schemes, runs the plan into a sink, and
//! names what went wrong.

mod metadata;
mod planning;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use zeropool::{Buffer, BufferPool};

use crate::Dtype;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::execute::{Progress, execute};
use crate::limits::{over, zeroed};
use crate::load::{Loader, PATIENCE};
use crate::plan::{Plan, TensorSpec};
use crate::scheme::QuantConfig;
use crate::sink::{Extent, Memory, SafetensorsSink, Sink};

type Filter<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;

/// Brings the weights of a checkpoint back to full precision. Made by [`remember`].
#[derive(Clone)]
pub struct Remember<'c> {
    checkpoint: &'c Checkpoint,
    dtype: Dtype,
    cast: bool,
    native: bool,
    threads: usize,
    filter: Option<Filter<'c>>,
    config: Option<QuantConfig>,
    overwrite: bool,
    loader: Option<Arc<dyn Loader>>,
}

/// One weight in memory: in a `Vec`, or in a pool's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered<B = Vec<u8>> {
    /// Its name, shape and dtype.
    pub spec: TensorSpec,
    /// Its elements in C order, little endian.
    pub bytes: B,
}

/// Brings every quantised weight of a checkpoint back to full precision (BF16 if nothing else is said);
/// plain tensors come along as they are.
///
/// Arithmetic is F32 in the order of the scheme's reference implementation, then one rounding to nearest
/// even. Outputs have the names and shapes that PyTorch has them under.
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
pub fn remember(checkpoint: &Checkpoint) -> Remember<'_> {
    Remember {
        checkpoint,
        dtype: Dtype::BF16,
        cast: false,
        native: false,
        threads: 0,
        filter: None,
        config: None,
        overwrite: false,
        loader: None,
    }
}

impl<'c> Remember<'c> {
    /// What quantised weights become: `BF16` (the default), `F16` or `F32`.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Whether plain tensors of floats are cast to that dtype too. They stay as they are if not.
    #[must_use]
    pub fn cast(mut self, cast: bool) -> Self {
        self.cast = cast;
        self
    }

    /// Rounds HQQ and MLX weights as their references do, after each operation in the dtype of their scales,
    /// instead of once at the end.
    #[must_use]
    pub fn native_rounding(mut self, native: bool) -> Self {
        self.native = native;
        self
    }

    /// Threads that decode; 0, the default, for one per core. The bytes do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Only outputs whose name this accepts.
    #[must_use]
    pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.filter = Some(Arc::new(keep));
        self
    }

    /// Uses this configuration instead of that in the files beside the checkpoint.
    #[must_use]
    pub fn config(mut self, config: QuantConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Brings stored bytes with this loader, ahead of the threads that decode: for files that are not in the page
    /// cache. Without, they are lent from the map, or read tile by tile. The bytes that come out are the same.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// Whether files that exist are replaced.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// What would be done. Reads headers that are in memory, the configuration beside the checkpoint, and
    /// descriptors of a few bytes each.
    ///
    /// # Errors
    /// I/O, a configuration that is not JSON, or a dtype that weights do not become. Weights that cannot be
    /// made are listed in [`Plan::refused`].
    pub fn plan(&self) -> Result<Plan> {
        planning::plan(self)
    }

    /// Runs a plan of [`plan`](Self::plan) into a sink. `watch` hears of progress and may stop the run.
    ///
    /// # Errors
    /// As [`execute`]; the first refusal of the plan, if there is one.
    pub fn run(
        &self,
        plan: &mut Plan,
        sink: &mut dyn Sink,
        watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        refusal(plan)?;
        execute(
            self.checkpoint,
            plan,
            self.loader.as_deref(),
            sink,
            self.threads,
            watch,
        )
    }

    /// One weight, or one plain tensor.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if there is none of this name.
    pub fn tensor(&self, name: &str) -> Result<Remembered> {
        let mut all = self.clone().filter(|found| found == name).all()?;
        all.pop().ok_or_else(|| {
            Error::misuse(format!(
                "there is no weight {}",
                crate::catalog::quote(name)
            ))
        })
    }

    /// One weight, or one plain tensor, into memory of the caller's. It must be as long as the weight is.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor), and if the length is another.
    pub fn tensor_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let one = self.clone().filter(|found| found == name);
        let mut plan = one.plan()?;
        if plan.jobs.is_empty() && plan.refused.is_empty() {
            return Err(Error::misuse(format!(
                "there is no weight {}",
                crate::catalog::quote(name)
            )));
        }
        one.run(&mut plan, &mut Memory::new(vec![out]), &mut |_| {
            ControlFlow::Continue(())
        })
    }

    /// All weights and plain tensors, in memory.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if one is longer than [`Limits::tensor_bytes`](crate::Limits::tensor_bytes).
    pub fn all(&self) -> Result<Vec<Remembered>> {
        self.gather(|output| zeroed(self.within(output)?).ok_or_else(|| self.over(output)))
    }

    /// All weights and plain tensors, in buffers of a pool: no page of memory that was used before is touched for the
    /// first time again, which is what filling a new `Vec` mostly consists of.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let pool = zeropool::BufferPool::new();
    /// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
    /// for weight in remember(&checkpoint).all_in(&pool)? {
    ///     println!("{}: {} bytes", weight.spec, weight.bytes.len());
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`all`](Self::all), and if the pool's budget does not hold them: what it has lent elsewhere is waited for, a
    /// few seconds long.
    pub fn all_in(&self, pool: &BufferPool) -> Result<Vec<Remembered<Buffer>>> {
        self.gather(|output| {
            let room = pool.get_timeout(self.within(output)?, PATIENCE);
            room.map_err(|e| crate::load::refused(e, pool))
        })
    }

    /// All outputs, in memory that `room` gives for each.
    fn gather<B: AsMut<[u8]>>(
        &self,
        room: impl Fn(&TensorSpec) -> Result<B>,
    ) -> Result<Vec<Remembered<B>>> {
        let mut plan = self.plan()?;
        refusal(&mut plan)?;
        let make = |spec: TensorSpec| {
            Ok(Remembered {
                bytes: room(&spec)?,
                spec,
            })
        };
        let mut all = plan
            .jobs
            .iter()
            .map(|job| make(job.output.clone()))
            .collect::<Result<Vec<_>>>()?;
        let buffers = all.iter_mut().map(|one| one.bytes.as_mut()).collect();
        self.run(&mut plan, &mut Memory::new(buffers), &mut |_| {
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    /// Writes a safetensors file. It appears under its name when it is whole.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if the file cannot be written.
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), Extent::File)
    }

    /// Writes a directory of safetensors files of at most `shard_bytes` of tensors each, and their index.
    ///
    /// # Errors
    /// As [`to_file`](Self::to_file).
    pub fn to_dir(&self, path: impl AsRef<Path>, shard_bytes: u64) -> Result<()> {
        self.write(path.as_ref(), Extent::Shards(shard_bytes))
    }

    fn write(&self, path: &Path, extent: Extent) -> Result<()> {
        let mut plan = self.plan()?;
        let mut sink = self.safetensors(path, extent)?;
        self.run(&mut plan, &mut sink, &mut |_| ControlFlow::Continue(()))
    }

    /// The sink that [`to_file`](Self::to_file) and [`to_dir`](Self::to_dir) write to: with the checkpoint's
    /// metadata.
    ///
    /// # Errors
    /// If the metadata cannot be read.
    pub fn safetensors(&self, path: impl AsRef<Path>, extent: Extent) -> Result<SafetensorsSink> {
        let metadata = metadata::carried(self.checkpoint)?;
        Ok(SafetensorsSink::new(path.as_ref(), extent)
            .overwrite(self.overwrite)
            .metadata(metadata))
    }

    /// The length of an output, within the limits.
    fn within(&self, output: &TensorSpec) -> Result<usize> {
        let allowed = self.checkpoint.limits().tensor_bytes;
        let len = output
            .nbytes()
            .filter(|len| *len <= allowed)
            .and_then(|len| usize::try_from(len).ok());
        len.ok_or_else(|| self.over(output))
    }

    #[cold]
    fn over(&self, output: &TensorSpec) -> Error {
        let (needed, allowed) = (
            output.nbytes().unwrap_or(u64::MAX),
            self.checkpoint.limits().tensor_bytes,
        );
        let what = format!("weight {}", crate::catalog::quote(&output.name));
        over(needed, allowed, what, "tensor_bytes")
    }
}

/// The first refusal of a plan, if there is one.
fn refusal(plan: &mut Plan) -> Result<()> {
    if plan.refused.is_empty() {
        return Ok(());
    }
    let more = plan.refused.len() - 1;
    let first = plan.refused.swap_remove(0).error;
    Err(if more > 0 {
        first.about(&format!("{} weights cannot be made", more + 1))
    } else {
        first
    })
}

impl std::fmt::Debug for Remember<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remember")
            .field("dtype", &self.dtype)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
