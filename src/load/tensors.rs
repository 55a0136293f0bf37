//! `load`: the tensors of a checkpoint in memory.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use zeropool::BufferPool;

use super::choose::choose_for;
use super::cut::Cut;
use super::loaded::{Loaded, LoadedTensor, Stream};
use super::run::{Origin, Run, Task, tasks};
use super::{Choice, Feed, Loader, Reading, Way};
use crate::catalog::{ByteRange, TensorInfo, quote};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::execute::{Progress, Watch};
use crate::limits::{Limits, over};
use crate::tensor::Tensor;

type Filter<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;
type Cuts<'c> = Arc<dyn Fn(&TensorInfo) -> Cut + Send + Sync + 'c>;
type Order<'c> = Arc<dyn Fn(&TensorInfo, &TensorInfo) -> Ordering + Send + Sync + 'c>;

/// Brings the tensors of a checkpoint into memory. Made by [`load`].
#[derive(Clone)]
pub struct Load<'c> {
    checkpoint: &'c Checkpoint,
    choice: Option<Choice>,
    pool: Option<BufferPool>,
    own: bool,
    threads: usize,
    filter: Option<Filter<'c>>,
    cut: Option<Cuts<'c>>,
    order: Option<Order<'c>>,
    limits: Limits,
    ahead: u64,
}

/// Brings the tensors of a checkpoint into memory, as they are stored (quantised weights stay so; see
/// [`remember`](crate::remember)): little endian, in C order, checksums of archives verified.
///
/// Bytes lie in buffers of a pool, several small tensors in one; the memory of a buffer returns to the pool with the
/// last of its tensors. Give the same [`pool`](Load::pool) to the next load and no page of it is touched for the first
/// time again, which is what loading from a warm cache mostly consists of.
///
/// ```
/// use anamnesis::{Checkpoint, load};
///
/// let pool = zeropool::BufferPool::new();
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let tensors = load(&checkpoint).pool(&pool).run()?;
/// println!("loaded by {}", tensors.choice());
/// assert_eq!(tensors.get("lm_head.weight").expect("it is there").bytes().len(), 1024);
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn load(checkpoint: &Checkpoint) -> Load<'_> {
    Load {
        checkpoint,
        choice: None,
        pool: None,
        own: true,
        threads: 0,
        filter: None,
        cut: None,
        order: None,
        limits: *checkpoint.limits(),
        ahead: 256 << 20,
    }
}

impl<'c> Load<'c> {
    /// Uses this loader instead of the one that [`choose`](crate::load::choose) picks.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.choice = Some(Choice {
            loader: Arc::new(loader),
            why: "as asked".into(),
        });
        self
    }

    /// Uses what was chosen before, with its reason.
    #[must_use]
    pub fn choice(mut self, choice: Choice) -> Self {
        self.choice = Some(choice);
        self
    }

    /// Takes memory from this pool instead of a new one.
    #[must_use]
    pub fn pool(mut self, pool: &BufferPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Whether bytes are copied into memory of the pool (the default), or may be lent from the mapped file, which is
    /// then not to be changed while they are used. What is lent is not read: checksums of archives are then not
    /// verified.
    #[must_use]
    pub fn own(mut self, own: bool) -> Self {
        self.own = own;
        self
    }

    /// Threads that unpack and check; 0, the default, for one per core. How many read is the loader's affair.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Only tensors whose name this accepts.
    #[must_use]
    pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.filter = Some(Arc::new(keep));
        self
    }

    /// Which part of each tensor is loaded: some rows, or one worker's share. Only those bytes are read, but for tensors
    /// that must be unpacked and those in archives, whose checksums are of the whole.
    #[must_use]
    pub fn cut(mut self, cut: impl Fn(&TensorInfo) -> Cut + Send + Sync + 'c) -> Self {
        self.cut = Some(Arc::new(cut));
        self
    }

    /// In which order tensors are loaded; as they lie in the files if it is not given.
    #[must_use]
    pub fn order(
        mut self,
        order: impl Fn(&TensorInfo, &TensorInfo) -> Ordering + Send + Sync + 'c,
    ) -> Self {
        self.order = Some(Arc::new(order));
        self
    }

    /// What loading may cost, instead of what opening was told.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes that [`stream`](Self::stream) reads before they are asked for. Default 256 MiB.
    #[must_use]
    pub fn ahead(mut self, bytes: u64) -> Self {
        self.ahead = bytes;
        self
    }

    /// Loads all of them.
    ///
    /// # Errors
    /// I/O, tensors that cannot be read (sparse, without data, damaged) or cut there, more than
    /// [`Limits::tensor_bytes`] for one or than the pool's budget for all.
    pub fn run(&self) -> Result<Loaded<'c>> {
        self.run_watched(&mut |_| ControlFlow::Continue(()))
    }

    /// Loads all of them; `watch` hears of progress and may stop it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if `watch` says so.
    pub fn run_watched(
        &self,
        watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
    ) -> Result<Loaded<'c>> {
        let pool = self.memory();
        let (reads, tasks) = self.tasks(true)?;
        self.fits(&tasks, &pool)?;
        let run = Run::new(&pool, self.own, &tasks, Watch::new(total(&tasks), watch));
        let (choice, way) = self.feed(&reads, &pool, u64::MAX, &mut |feed| {
            run.all(feed, self.threads)
        })?;
        run.course.finish();
        Ok(Loaded::new(run.end(), choice, way))
    }

    /// Hands tensors out one by one, in order, while the next ones are read: memory is what is
    /// [`ahead`](Self::ahead), and what `body` keeps. What it does not take is not loaded.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// load(&checkpoint).ahead(64 << 20).stream(|tensors| {
    ///     for tensor in tensors {
    ///         let tensor = tensor?;
    ///         println!("{}: {} bytes", tensor.name(), tensor.bytes().len());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), and what `body` returns.
    pub fn stream(
        &self,
        mut body: impl FnMut(&mut Stream<'_, 'c>) -> Result<()> + Send,
    ) -> Result<()> {
        let pool = self.memory();
        let (reads, tasks) = self.tasks(false)?;
        let nobody = &mut |_| ControlFlow::Continue(());
        let run = Run::new(&pool, self.own, &tasks, Watch::new(total(&tasks), nobody));
        self.feed(&reads, &pool, self.ahead, &mut |feed| {
            let mut next = || run.next(feed);
            body(&mut Stream::new(&mut next))
        })
        .map(drop)
    }

    /// One tensor, or the part of it that [`cut`](Self::cut) says.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if there is none of this name.
    pub fn tensor(&self, name: &str) -> Result<LoadedTensor<'c>> {
        let wanted = name.to_owned();
        let loaded = self.clone().filter(move |found| *found == *wanted).run()?;
        let none = || Error::misuse(format!("there is no tensor {}", quote(name)));
        loaded.into_iter().next().ok_or_else(none)
    }

    /// One tensor, or the part of it that [`cut`](Self::cut) says, into memory of the caller's, which must be as long.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor), and if the length is another.
    pub fn tensor_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let tensor = self.tensor(name)?;
        let wrong = || {
            format!(
                "tensor {} has {} bytes, and the buffer {}",
                quote(name),
                tensor.bytes().len(),
                out.len()
            )
        };
        if out.len() != tensor.bytes().len() {
            return Err(Error::misuse(wrong()));
        }
        out.copy_from_slice(tensor.bytes());
        Ok(())
    }

    fn memory(&self) -> BufferPool {
        self.pool.clone().unwrap_or_default()
    }

    fn tasks(&self, keep: bool) -> Result<(Vec<ByteRange>, Vec<Task<'c>>)> {
        let wanted = |tensor: &Tensor<'_>| {
            self.filter
                .as_ref()
                .is_none_or(|keep| keep(&tensor.info().name))
        };
        let mut tensors: Vec<_> = self.checkpoint.tensors().filter(wanted).collect();
        if let Some(order) = &self.order {
            tensors.sort_by(|a, b| order(a.info(), b.info()));
        }
        let cut = |tensor: &Tensor<'_>| {
            self.cut
                .as_ref()
                .map(|cut| cut(tensor.info()))
                .unwrap_or_default()
        };
        let (reads, tasks) = tasks(tensors.into_iter(), cut, keep)?;
        let allowed = self.limits.tensor_bytes;
        if let Some(task) = tasks.iter().find(|task| task.runs.nbytes() > allowed) {
            let what = format!("tensor {}", quote(&task.tensor.info().name));
            return Err(over(task.runs.nbytes(), allowed, what, "tensor_bytes"));
        }
        Ok((reads, tasks))
    }

    /// What could never fit is refused before anything is read.
    fn fits(&self, tasks: &[Task<'_>], pool: &BufferPool) -> Result<()> {
        let own = tasks
            .iter()
            .filter(|task| !matches!(task.origin, Origin::Same(_)));
        let needed = own
            .map(|task| task.runs.nbytes())
            .fold(0, u64::saturating_add);
        let allowed = pool.budget() as u64;
        if self.own && needed > allowed {
            let what = "all tensors in memory at once".to_owned();
            return Err(over(needed, allowed, what, "budget"));
        }
        Ok(())
    }

    /// Has a loader bring the reads; says which, and how it did.
    fn feed(
        &self,
        reads: &[ByteRange],
        pool: &BufferPool,
        ahead: u64,
        body: &mut (dyn FnMut(&dyn Feed<'c>) -> Result<()> + Send),
    ) -> Result<(Choice, Option<Way>)> {
        let choice = self
            .choice
            .clone()
            .unwrap_or_else(|| choose_for(self.checkpoint, self.own));
        // of a part no more is read than the pages that it is in
        let gap = if self.cut.is_some() { 4095 } else { super::GAP };
        let reading = Reading {
            checkpoint: self.checkpoint,
            pool: pool.clone(),
            ahead,
            gap,
        };
        let mut way = None;
        reading.bring(&*choice.loader, reads, &mut |feed| {
            body(feed)?;
            way = feed.way();
            Ok(())
        })?;
        Ok((choice, way))
    }
}

/// Bytes of all of them.
fn total(tasks: &[Task<'_>]) -> u64 {
    tasks
        .iter()
        .map(|task| task.runs.nbytes())
        .fold(0, u64::saturating_add)
}

impl std::fmt::Debug for Load<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("choice", &self.choice)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
