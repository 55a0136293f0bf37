//! `load`: the tensors of a checkpoint in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use zeropool::{Buffer, BufferPool};

use super::{Choice, Chunk, Facts, Feed, Loader, Reading, choose};
use crate::catalog::{ByteRange, TensorInfo, quote};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::execute::{Progress, Watch};
use crate::tensor::Tensor;

type Filter<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;

/// Brings the tensors of a checkpoint into memory. Made by [`load`].
#[derive(Clone)]
pub struct Load<'c> {
    checkpoint: &'c Checkpoint,
    choice: Option<Choice>,
    pool: Option<BufferPool>,
    own: bool,
    threads: usize,
    filter: Option<Filter<'c>>,
}

/// Tensors in memory, in file order.
#[derive(Clone, Debug)]
pub struct Loaded<'c> {
    tensors: Vec<LoadedTensor<'c>>,
    names: HashMap<&'c str, usize>,
    choice: Choice,
}

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct LoadedTensor<'c> {
    info: &'c TensorInfo,
    bytes: Chunk<'c>,
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
    Load { checkpoint, choice: None, pool: None, own: true, threads: 0, filter: None }
}

impl<'c> Load<'c> {
    /// Uses this loader instead of the one that [`choose`] picks.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.choice = Some(Choice { loader: Arc::new(loader), why: "as asked".into() });
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
    /// then not to be changed while they are used.
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

    /// Loads.
    ///
    /// # Errors
    /// I/O, tensors that cannot be read (sparse, without data, damaged), more than
    /// [`Limits::tensor_bytes`](crate::Limits::tensor_bytes) for one or than the pool's budget for all.
    pub fn run(&self) -> Result<Loaded<'c>> {
        self.run_watched(&mut |_| ControlFlow::Continue(()))
    }

    /// Loads; `watch` hears of progress and may stop it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`ErrorKind::Cancelled`] if `watch` says so.
    pub fn run_watched(&self, watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send)) -> Result<Loaded<'c>> {
        let tensors: Vec<Tensor<'c>> = self.checkpoint.tensors().filter(|tensor| self.wants(tensor)).collect();
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => BufferPool::new(),
        };
        let choose = || choose(&Facts::of(self.checkpoint), self.own);
        let choice = self.choice.clone().unwrap_or_else(choose);
        let (reads, origins) = origins(&tensors);
        self.within(&tensors, &origins, &pool)?;
        let total = tensors.iter().map(|tensor| tensor.info().nbytes()).fold(0, u64::saturating_add);
        let run = Run {
            pool: &pool,
            own: self.own,
            tensors: &tensors,
            origins: &origins,
            loaded: tensors.iter().map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::new(None),
            watch: Watch::new(total, watch),
        };
        let reading = Reading { checkpoint: self.checkpoint, pool: pool.clone(), ahead: u64::MAX };
        let mut called = false;
        choice.loader.run(&reading, &reads, &mut |feed| {
            called = true;
            run.all(feed, self.threads)
        })?;
        if !called {
            return Err(Error::misuse("the loader did not lend a feed"));
        }
        run.watch.finish();
        let tensors = run.end();
        let names = tensors.iter().enumerate().map(|(i, tensor)| (&*tensor.info.name, i)).collect();
        Ok(Loaded { tensors, names, choice })
    }

    fn wants(&self, tensor: &Tensor<'_>) -> bool {
        self.filter.as_ref().is_none_or(|keep| keep(&tensor.info().name))
    }

    /// What could never fit is refused before anything is read.
    fn within(&self, tensors: &[Tensor<'_>], origins: &[Origin], pool: &BufferPool) -> Result<()> {
        let limit = self.checkpoint.limits().tensor_bytes;
        if let Some(tensor) = tensors.iter().find(|tensor| tensor.info().nbytes() > limit) {
            let what = format!("tensor {}", quote(&tensor.info().name));
            let needed = tensor.info().nbytes();
            return Err(Error::new(ErrorKind::Limit { what, needed, allowed: limit, knob: "tensor_bytes" }));
        }
        let own = tensors.iter().zip(origins).filter(|(_, origin)| !matches!(origin, Origin::Same(_)));
        let needed = own.map(|(tensor, _)| tensor.info().nbytes()).fold(0, u64::saturating_add);
        let allowed = pool.stats().budget as u64;
        if self.own && needed > allowed {
            let what = "all tensors in memory at once".to_owned();
            return Err(Error::new(ErrorKind::Limit { what, needed, allowed, knob: "budget" }));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Load<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("choice", &self.choice).field("own", &self.own).finish_non_exhaustive()
    }
}

impl<'c> Loaded<'c> {
    /// The tensors, in file order.
    pub fn tensors(&self) -> &[LoadedTensor<'c>] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&LoadedTensor<'c>> {
        self.names.get(name).map(|&i| &self.tensors[i])
    }

    /// Which loader brought them, and why it was chosen.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Bytes of all of them.
    pub fn nbytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.info.nbytes()).fold(0, u64::saturating_add)
    }
}

impl<'c> LoadedTensor<'c> {
    /// Its description.
    pub fn info(&self) -> &'c TensorInfo {
        self.info
    }

    /// Its elements in C order, little endian; of block types the blocks. At any address: several tensors share a buffer,
    /// with the distances that they have in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, to be kept for themselves: cheap to clone, and [`bytes::Bytes`](zeropool::Shared) without a copy
    /// where they are the pool's.
    pub fn into_chunk(self) -> Chunk<'c> {
        self.bytes
    }
}

/// Where a tensor's bytes come from.
#[derive(Clone, Copy)]
enum Origin {
    /// A read of its own.
    Read(usize),
    /// The bytes of an earlier tensor.
    Same(usize),
    /// Inflated, gathered or turned around.
    Made,
}

/// What the loader is asked to read, and which tensor wants it.
fn origins(tensors: &[Tensor<'_>]) -> (Vec<ByteRange>, Vec<Origin>) {
    let mut reads = Vec::new();
    let mut known = HashMap::new();
    let origin = |(number, tensor): (usize, &Tensor<'_>)| {
        let bytes = tensor.info().bytes;
        if !tensor.lies_as_it_is() {
            return Origin::Made;
        }
        match known.entry((bytes.file, bytes.start, bytes.len)) {
            Entry::Occupied(first) => Origin::Same(*first.get()),
            Entry::Vacant(new) => {
                new.insert(number);
                reads.push(bytes);
                Origin::Read(reads.len() - 1)
            }
        }
    };
    let origins = tensors.iter().enumerate().map(origin).collect();
    (reads, origins)
}

/// One load.
struct Run<'r, 'c> {
    pool: &'r BufferPool,
    own: bool,
    tensors: &'r [Tensor<'c>],
    origins: &'r [Origin],
    loaded: Vec<OnceLock<Chunk<'c>>>,
    next: AtomicUsize,
    done: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    watch: Watch<'r>,
}

impl<'c> Run<'_, 'c> {
    /// Loads every tensor; with several threads only if there is something to do besides waiting.
    fn all(&self, feed: &dyn Feed<'c>, threads: usize) -> Result<()> {
        let work = |(tensor, origin): (&Tensor<'_>, &Origin)| tensor.is_guarded() || matches!(origin, Origin::Made);
        let busy = self.tensors.iter().zip(self.origins).filter(|pair| work(*pair)).count();
        let threads = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
        thread::scope(|scope| {
            for _ in 1..threads.min(busy) {
                // one is enough
                let _ = thread::Builder::new().name("load".into()).spawn_scoped(scope, || self.worker(feed));
            }
            self.worker(feed);
        });
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }

    fn worker(&self, feed: &dyn Feed<'c>) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.tensors.len() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = self.one(number, feed) {
                self.stop.store(true, Ordering::Relaxed);
                // the first one tells; those of other threads follow from stopping
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    }

    fn one(&self, number: usize, feed: &dyn Feed<'c>) -> Result<()> {
        let tensor = &self.tensors[number];
        let chunk = match self.origins[number] {
            Origin::Same(_) => None,
            Origin::Read(read) => {
                let chunk = feed.take(read)?;
                if tensor.is_guarded() {
                    tensor.believe(&chunk)?;
                }
                Some(match chunk {
                    Chunk::Lent(lent) if self.own && !lent.is_empty() => {
                        let mut own = self.room(lent.len() as u64)?;
                        own.copy_from_slice(lent);
                        Chunk::Pooled(own.freeze())
                    }
                    chunk => chunk,
                })
            }
            Origin::Made => {
                let mut made = self.room(tensor.info().nbytes())?;
                tensor.read_into(&mut made)?;
                Some(Chunk::Pooled(made.freeze()))
            }
        };
        if let Some(chunk) = chunk {
            let _ = self.loaded[number].set(chunk);
        }
        let nbytes = tensor.info().nbytes();
        let done = self.done.fetch_add(nbytes, Ordering::Relaxed) + nbytes;
        if self.watch.tell(done).is_break() { Err(Error::new(ErrorKind::Cancelled)) } else { Ok(()) }
    }

    /// A buffer, if the pool has room: what is loaded is kept, so nothing would come back.
    fn room(&self, nbytes: u64) -> Result<Buffer> {
        let len = usize::try_from(nbytes).map_err(|_| Error::misuse("more bytes than can be addressed"))?;
        self.pool.get_timeout(len, super::PATIENCE).map_err(|e| super::refused(e, self.pool))
    }

    fn end(self) -> Vec<LoadedTensor<'c>> {
        let loaded: Vec<_> = self.loaded.into_iter().map(OnceLock::into_inner).collect();
        let origins = self.origins.iter().enumerate();
        let from = origins.map(|(number, origin)| if let Origin::Same(first) = origin { *first } else { number });
        let tensor = |(tensor, from): (&Tensor<'c>, usize)| LoadedTensor {
            info: tensor.info(),
            bytes: loaded[from].clone().expect("every tensor was loaded, or one of them failed"),
        };
        self.tensors.iter().zip(from).map(tensor).collect()
    }
}
