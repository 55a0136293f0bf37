//! The builder [`load`]: which tensors are loaded, how, and into which memory.

mod run_into;
mod stream;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use zeropool::BufferPool;

use super::choose::choose_for;
use super::loaded::{LoadOutcome, Loaded, LoadedTensor};
use super::slices::SliceChoice;
use super::tasks::{
    ByteOrigin, LoadRun, LoadTask, MAX_ALIGN, MemoryOptions, SLICE_GAP, plan_tasks,
};
use super::{Feed, LoadContext, Loader, LoaderChoice, MAX_GAP};
use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits, over};
use crate::base::template::parallel::Rules;
use crate::models::parallel::TensorParallel;
use crate::read::catalog::{ByteRange, TensorInfo, quote};
use crate::read::checkpoint::{Checkpoint, CheckpointHandle, Ownership};
use crate::read::run_options::{RunOptions, run_options};
use crate::read::slice::TensorSlice;
use crate::read::tensor::Tensor;

/// Loads the tensors of a checkpoint into memory. Made by [`load`].
#[derive(Clone)]
pub struct Load<'c> {
    checkpoint: CheckpointHandle<'c>,
    choice: Option<LoaderChoice>,
    pool: Option<BufferPool>,
    memory: MemoryOptions,
    slices: SliceChoice<'c>,
    /// The only tensors that are loaded, if they were named.
    names: Option<Arc<BTreeSet<Box<str>>>>,
    limits: Limits,
    read_ahead: u64,
    options: RunOptions<'c>,
}

/// Loads the tensors of a checkpoint into memory, as they are stored: little endian, in C order, quantised weights
/// still quantised (see [`remember`](crate::remember)), with the checksums of archives verified.
///
/// The bytes lie in buffers of a pool, several small tensors in one; a buffer returns to the pool when the last of its
/// tensors is dropped. Tensors share a buffer only as long as it has at most 16 MiB, so that a small tensor that is kept keeps
/// no more than that. Pass the same [`pool`](Load::pool) to the next load, and its memory needs no new page faults,
/// which take most of the time of loading from a warm page cache.
///
/// ```
/// use anamnesis::{Checkpoint, load};
///
/// let pool = anamnesis::pool::BufferPool::new();
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let tensors = load(&checkpoint).pool(&pool).run()?;
/// println!("loaded by {}", tensors.choice());
/// assert_eq!(tensors.get("lm_head.weight").expect("the checkpoint has it").bytes().len(), 1024);
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// With an `Arc<Checkpoint>` the builder and its results have no lifetime: see [`CheckpointHandle`].
pub fn load<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Load<'c> {
    let checkpoint = checkpoint.into();
    Load {
        choice: None,
        pool: None,
        memory: MemoryOptions {
            borrow_mapped: false,
            align: 1,
        },
        slices: SliceChoice::Whole,
        names: None,
        // the limits of opening hold for loading too, unless the caller sets others
        limits: *checkpoint.limits(),
        checkpoint,
        read_ahead: 256 << 20,
        options: RunOptions::default(),
    }
}

run_options!(Load {
    /// They inflate, gather and verify; the loader decides how many threads read.
    threads,
    /// Tensors of these names are loaded.
    filter,
    /// In bytes of tensors. Also at least every 100 ms while the load waits for bytes.
    progress,
    cancel,
});

impl<'c> Load<'c> {
    /// Uses this loader instead of the one that [`choose`](crate::load::choose) picks.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.choice = Some(LoaderChoice {
            loader: Arc::new(loader),
            reason: "set by the caller".into(),
        });
        self
    }

    /// Uses a loader that was chosen before, and reports its reason.
    #[must_use]
    pub fn choice(mut self, choice: LoaderChoice) -> Self {
        self.choice = Some(choice);
        self
    }

    /// Gets memory from this pool instead of a new one.
    #[must_use]
    pub fn pool(mut self, pool: &BufferPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Allows tensors to borrow from the mapped file, instead of being copied into the pool. The file must not change
    /// while they are used. Borrowed bytes are not read, so that checksums of archives are not verified. Bytes of a
    /// checkpoint that was opened with [`OpenOptions::private`](crate::OpenOptions::private) are writable.
    #[must_use]
    pub fn borrow_mapped(mut self) -> Self {
        self.memory.borrow_mapped = true;
        self
    }

    /// Makes the address of every tensor a multiple of `bytes`: a power of two up to 64. Default 1: tensors have the alignment
    /// that they have in the file. A tensor that is placed otherwise is copied once.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/all_dtypes.safetensors")?;
    /// for tensor in load(&checkpoint).align(64).run()?.tensors() {
    ///     assert!(tensor.bytes().is_empty() || tensor.bytes().as_ptr().addr() % 64 == 0);
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn align(mut self, bytes: usize) -> Self {
        self.memory.align = bytes;
        self
    }

    /// Which part of each tensor is loaded. Only its bytes are read, except of tensors that must be inflated or gathered, and
    /// of archives, whose checksums cover whole tensors. Replaces what [`slices`](Self::slices) or
    /// [`tensor_parallel`](Self::tensor_parallel) have set.
    #[must_use]
    pub fn slice(mut self, slice: impl Fn(&TensorInfo) -> TensorSlice + Send + Sync + 'c) -> Self {
        self.slices = SliceChoice::One(Arc::new(slice));
        self
    }

    /// Which parts of each tensor are loaded, each as a tensor of its own, in this order: the projections that are fused into
    /// one tensor, for example. A tensor without parts is not loaded.
    ///
    /// ```
    /// use anamnesis::slice::TensorSlice;
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let halves = load(&checkpoint)
    ///     .filter(|name| name == "lm_head.weight")
    ///     .slices(|_| vec![TensorSlice::Rows(0..16), TensorSlice::Rows(16..32)])
    ///     .run()?;
    /// let [_, second] = halves.tensors() else { panic!("two parts of one tensor") };
    /// assert_eq!((second.name(), second.slice()), ("lm_head.weight", &TensorSlice::Rows(16..32)));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn slices(
        mut self,
        slices: impl Fn(&TensorInfo) -> Vec<TensorSlice> + Send + Sync + 'c,
    ) -> Self {
        self.slices = SliceChoice::Several(Arc::new(slices));
        self
    }

    /// Loads the share of worker `rank` of `of` in each tensor, by the rules that [`predict`](crate::predict()) uses, and
    /// with the numbers of heads in the model's configuration. Axes that the number of workers does not divide are split as
    /// evenly as possible, between blocks. A tensor whose rows end inside of a block is loaded whole by every worker, and so
    /// are tensors without a rule, and vectors of up to 4096 bytes unless they are biases. A worker has [one
    /// tensor](TensorSlice::Joined) of a fused matrix, with its part of each.
    ///
    /// ```
    /// use anamnesis::template::parallel::Rules;
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let rules = Rules::default();
    /// let share = load(&checkpoint).tensor_parallel(1, 2, &rules).tensor("lm_head.weight")?;
    /// // the vocabulary of 32 is padded to 64, of which the second half has no rows
    /// assert_eq!(share.shape(), [0, 16]);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn tensor_parallel(mut self, rank: u32, of: u32, rules: &Rules) -> Self {
        self.slices = SliceChoice::Parallel(Arc::new(TensorParallel::new(rank, of, rules)));
        self
    }

    /// Loads the tensors of these names alone, of which a [filter](Self::filter) may leave out some. They are looked up: of a
    /// checkpoint of 100 000 tensors, one costs microseconds.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let loaded = load(&checkpoint).names(["lm_head.weight"]).run()?;
    /// assert_eq!(loaded.tensors().len(), 1);
    /// assert!(load(&checkpoint).names(["lm_head.bias"]).run().is_err());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn names<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names = Some(Arc::new(names.into_iter().map(Into::into).collect()));
        self
    }

    /// The order in which tensors are loaded. Default: file order.
    #[must_use]
    pub fn order(
        mut self,
        order: impl Fn(&TensorInfo, &TensorInfo) -> Ordering + Send + Sync + 'c,
    ) -> Self {
        self.options.selection.set_order(order);
        self
    }

    /// Limits of the load, instead of those that the checkpoint was opened with.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes that [`stream`](Self::stream) reads ahead of the consumer. Default 256 MiB.
    #[must_use]
    pub fn read_ahead(mut self, bytes: u64) -> Self {
        self.read_ahead = bytes;
        self
    }

    /// Loads all selected tensors.
    ///
    /// # Errors
    /// I/O errors; tensors that cannot be read (sparse, without data, damaged) or sliced as requested; a tensor above
    /// [`Limits::tensor_bytes`], or more in sum than the pool's budget; cancellation.
    pub fn run(&self) -> Result<Loaded<'c>> {
        match &self.checkpoint.0 {
            Ownership::Borrowed(checkpoint) => self.run_on(checkpoint),
            Ownership::Shared(checkpoint) => Ok(self.run_on(checkpoint)?.shared(checkpoint)),
        }
    }

    /// Like [`run`](Self::run), with results that borrow from the checkpoint.
    fn run_on<'k>(&self, checkpoint: &'k Checkpoint) -> Result<Loaded<'k>>
    where
        'c: 'k,
    {
        let pool = self.pool_or_new();
        // shared buffers: all tensors are kept, so one read can serve tied weights
        let (reads, tasks) = self.tasks(checkpoint, true)?;
        self.check_budget(&tasks, &pool)?;
        let run = LoadRun::new(&pool, self.memory, &tasks, &self.options.control);
        let load_all = &mut |feed: &dyn Feed<'k>| run.load_all(feed, self.options.threads);
        // all tensors are kept, so that less read-ahead would need no less memory
        let context = self.context(checkpoint, &pool, u64::MAX);
        let outcome = Self::feed(self.chosen(&reads), &context, &reads, load_all)?;
        run.progress.finish();
        Ok(Loaded::new(run.into_tensors(), outcome))
    }

    /// Loads one tensor, or its [`slice`](Self::slice).
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and one if the checkpoint has no tensor of this name, or if
    /// [`slices`](Self::slices) chooses none or several parts of it.
    pub fn tensor(&self, name: &str) -> Result<LoadedTensor<'c>> {
        let mut loaded = self.only([name]).run()?.into_iter();
        match (loaded.next(), loaded.next()) {
            // a name is of one tensor, of which there may be several slices
            (Some(tensor), None) => Ok(tensor),
            (None, _) => Err(not_one(name, "no slice")),
            (Some(_), Some(_)) => Err(not_one(name, "several slices")),
        }
    }

    /// The same load, of these tensors in place of those that a filter selects.
    fn only<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.clone().filter(|_| true).names(names)
    }

    fn pool_or_new(&self) -> BufferPool {
        self.pool.clone().unwrap_or_default()
    }

    /// The reads and tasks of the load. `share`: whether tensors of the same bytes share one buffer.
    fn tasks<'k>(
        &self,
        checkpoint: &'k Checkpoint,
        share: bool,
    ) -> Result<(Vec<ByteRange>, Vec<LoadTask<'k>>)> {
        let align = self.memory.align;
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(Error::invalid_argument(format!(
                "an alignment of {align} bytes: it must be a power of two up to {MAX_ALIGN}"
            )));
        }
        let mut tensors: Vec<Tensor<'k>> = match &self.names {
            None => checkpoint.tensors().collect(),
            Some(names) => named(checkpoint, names)?,
        };
        tensors.retain(|tensor| self.options.selection.contains(&tensor.info().name));
        // before tasks are planned, because reads are issued in their order
        self.options
            .selection
            .sort(&mut tensors, |tensor| tensor.info());
        // the limits of the load, in which the checkpoint's own memory does not count
        let budget = Budget::new(self.limits);
        let slices = self.slices.of(checkpoint)?;
        let (reads, tasks) = plan_tasks(
            checkpoint.catalog(),
            tensors.into_iter(),
            &slices,
            share,
            &budget,
        )?;
        let allowed = self.limits.tensor_bytes;
        if let Some(task) = tasks.iter().find(|task| task.nbytes() > allowed) {
            let what = format!("tensor {}", quote(&task.tensor.info().name));
            return Err(over(task.nbytes(), allowed, what, "tensor_bytes"));
        }
        Ok((reads, tasks))
    }

    /// Refuses, before anything is read, a load that cannot fit into the pool.
    fn check_budget(&self, tasks: &[LoadTask<'_>], pool: &BufferPool) -> Result<()> {
        let needed = tasks
            .iter()
            // tied tensors share the memory of the first
            .filter(|task| !matches!(task.origin, ByteOrigin::SameAs(_)))
            .map(LoadTask::nbytes)
            .fold(0, u64::saturating_add);
        // refused now instead of after the pool is full: `run` keeps every tensor, so waiting for a buffer could
        // never end
        let allowed = pool.budget() as u64;
        if !self.memory.borrow_mapped && needed > allowed {
            let what = "all tensors in memory at once".to_owned();
            return Err(over(needed, allowed, what, "budget"));
        }
        Ok(())
    }

    /// The loader that was set, or the one that is chosen for what is read.
    fn chosen(&self, reads: &[ByteRange]) -> LoaderChoice {
        let choose = || choose_for(&self.checkpoint, reads, self.memory.borrow_mapped);
        self.choice.clone().unwrap_or_else(choose)
    }

    /// The environment of the loader, besides the list of reads.
    fn context<'k>(
        &self,
        checkpoint: &'k Checkpoint,
        pool: &BufferPool,
        read_ahead: u64,
    ) -> LoadContext<'k> {
        let max_gap = match self.slices {
            SliceChoice::Whole => MAX_GAP,
            _ => SLICE_GAP,
        };
        LoadContext {
            checkpoint,
            pool: pool.clone(),
            read_ahead,
            max_gap,
            into_memory: false,
        }
    }

    /// Runs the loader over the reads.
    fn feed<'k>(
        choice: LoaderChoice,
        context: &LoadContext<'k>,
        reads: &[ByteRange],
        consumer: &mut (dyn FnMut(&dyn Feed<'k>) -> Result<()> + Send),
    ) -> Result<LoadOutcome> {
        let mut report = None;
        context.run(&*choice.loader, reads, &mut |feed| {
            consumer(feed)?;
            // after the consumer, because only what was read is reported
            report = feed.report();
            Ok(())
        })?;
        Ok(LoadOutcome { choice, report })
    }
}

/// The tensors of these names, in file order.
fn named<'k>(checkpoint: &'k Checkpoint, names: &BTreeSet<Box<str>>) -> Result<Vec<Tensor<'k>>> {
    let catalog = checkpoint.catalog();
    let number = |name: &str| {
        let number = catalog.position(name);
        number.ok_or_else(|| checkpoint.no_tensor(name))
    };
    let mut numbers: Vec<usize> = names
        .iter()
        .map(|name| number(name))
        .collect::<Result<_>>()?;
    numbers.sort_unstable();
    Ok(numbers
        .into_iter()
        .map(|number| checkpoint.tensor_at(number))
        .collect())
}

#[cold]
fn not_one(name: &str, chosen: &str) -> Error {
    let what = format!("tensor {}: {chosen}, where one is loaded", quote(name));
    Error::invalid_argument(what)
}

impl std::fmt::Debug for Load<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("choice", &self.choice)
            .field("borrow_mapped", &self.memory.borrow_mapped)
            .finish_non_exhaustive()
    }
}
