//! Loading: reading the stored bytes of a checkpoint's tensors into memory.
//!
//! A [`Loader`] receives the list of byte ranges that will be needed, in the order in which they will be consumed, and
//! calls the consumer with a [`Feed`] from which it gets their bytes. How far a loader reads ahead, the size of its
//! requests and the system calls it uses do not change the bytes that the consumer receives.
//!
//! | loader | how | when |
//! |---|---|---|
//! | [`MmapLoader`] | borrows from the mapped file, with `madvise` ahead | warm, and the caller needs no copy |
//! | [`PreadLoader`] | threads that read into pool buffers | warm and copied; network file systems |
//! | [`UringLoader`] | io_uring, a queue of reads into pool buffers | cold; on one core |
//! | [`RemoteLoader`] | many requests at a time, into pool buffers | files at URLs |
//!
//! [`RecordingLoader`] wraps any of them and records what is read, in which order, as an I/O template.
//!
//! [`PreadLoader`] and [`UringLoader`] can bypass the page cache (`O_DIRECT`) where the file system supports it.
//! [`choose`] picks a loader from the properties of the files and gives the reason.

mod builder;
mod caller_memory;
mod choose;
mod coalesce;
#[cfg(target_os = "linux")]
mod direct;
#[cfg(all(test, shuttle))]
pub(crate) mod interleavings;
mod loaded;
mod mmap;
mod on_demand;
mod pread;
mod read_ahead;
mod recording;
mod remote;
mod report;
mod running;
mod runs;
mod slices;
mod storage;
mod tasks;
#[cfg(all(target_os = "linux", feature = "uring"))]
mod uring;

use std::fmt::Debug;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::Duration;

use zeropool::{Buffer, BufferPool, SharedBuffer};

use crate::base::error::{Error, Result};
use crate::base::limits::over;
use crate::base::progress::{CHECK_INTERVAL, check_cancelled};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::{MappedBytes, MemorySource};

pub use builder::{Load, load};
pub use choose::{LoaderChoice, choose};
pub use coalesce::{Coalesced, Extent, ExtentSlice, coalesce};
pub use loaded::{LoadOutcome, Loaded, LoadedTensor, TensorStream};
pub use mmap::MmapLoader;
pub use pread::PreadLoader;
pub use recording::RecordingLoader;
pub use remote::RemoteLoader;
pub use report::{Backend, DirectIo, IoReport};
pub use running::RunningLoad;
pub use storage::{StorageInfo, StorageKind};
#[cfg(all(target_os = "linux", feature = "uring"))]
pub use uring::UringLoader;

/// Reads a list of byte ranges, in order and ahead of the consumer. An extension point: the trait may be implemented
/// outside of this crate.
pub trait Loader: Debug + Send + Sync {
    /// A short name for reports: `mmap`, `pread`, `io_uring`, `remote`, …
    fn name(&self) -> &'static str;

    /// Starts to read `reads`, and calls `consumer` exactly once with the feed of their bytes. Whatever the loader
    /// started (threads, a ring) has ended when this returns, so that nothing outlives the files. Bytes that the
    /// consumer did not get are dropped.
    ///
    /// # Errors
    /// The error of `consumer`. A read that fails ends the run: every pending [`get`](Feed::get) returns its error.
    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()>;
}

/// The function that a loader calls with its feed.
pub type Consumer<'b, 'c> = &'b mut (dyn FnMut(&dyn Feed<'c>) -> Result<()> + Send);

/// Called with the number of bytes of a read that have arrived; `Break` abandons the read.
pub type OnBytes<'w> = &'w mut dyn FnMut(u64) -> ControlFlow<()>;

/// The bytes of a loader's reads. Any thread may call it.
pub trait Feed<'c>: Sync {
    /// The bytes of the read with this index in the list; blocks until they have arrived. Each read can be consumed
    /// once, in about the order of the list: a loader does not read far beyond the first read that was not consumed.
    ///
    /// # Errors
    /// I/O errors, with file and offset; a pool whose budget is exhausted; an index that is out of range or was
    /// consumed before.
    fn get(&self, read: usize) -> Result<Chunk<'c>>;

    /// Like [`get`](Self::get), and cancellable: `on_bytes` is called with the number of bytes that have arrived, at least
    /// every 64 MiB and every 100 ms, and abandons the read if it returns `Break`. The provided implementation blocks until
    /// the whole read has arrived.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if `on_bytes` returns
    /// `Break`.
    fn get_cancellable(&self, read: usize, on_bytes: OnBytes<'_>) -> Result<Chunk<'c>> {
        let _ = on_bytes;
        self.get(read)
    }

    /// Like [`get_cancellable`](Self::get_cancellable), into memory of the consumer, of exactly the length of the read.
    /// Nothing writes to it after this has returned, and after an error its content is unspecified. The provided
    /// implementation copies from what `get_cancellable` returns. A feed whose [consumer reads](Self::reading_threads) calls
    /// `on_bytes` only between its system calls.
    ///
    /// # Errors
    /// The errors of [`get_cancellable`](Self::get_cancellable), and one if the memory has another length.
    fn get_into(&self, read: usize, out: &mut [u8], on_bytes: OnBytes<'_>) -> Result<()> {
        copy_into(self.get_cancellable(read, on_bytes)?, read, out, on_bytes)
    }

    /// The number of threads that call [`get_into`](Self::get_into) at the same time if the loader shall read as it was
    /// configured to, because those threads read. `None`, the default, if the loader reads by itself.
    fn reading_threads(&self) -> Option<usize> {
        None
    }

    /// Reports bytes that the consumer reads itself, without this feed: tensors that are inflated or gathered, and the
    /// headers of archive members, which are verified. Feeds that record or count need it; others ignore it.
    fn on_direct_read(&self, bytes: ByteRange) {
        let _ = bytes;
    }

    /// How the bytes that were consumed so far were read; `None` if the loader does not report it.
    fn report(&self) -> Option<IoReport> {
        None
    }
}

/// A loader that is shared.
impl<L: Loader + ?Sized> Loader for Arc<L> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        (**self).run(context, reads, consumer)
    }
}

/// The environment of a loader, besides the list of reads.
#[derive(Clone, Debug)]
pub struct LoadContext<'c> {
    /// The files.
    pub checkpoint: &'c Checkpoint,
    /// The pool that buffers come from.
    pub pool: BufferPool,
    /// Bytes that may be read before they are consumed. A loader exceeds it only for reads that a consumer is blocked
    /// on, so that no order of consumption can deadlock.
    pub read_ahead: u64,
    /// Unneeded bytes between two reads that are read along with them, so that both become one request: [`MAX_GAP`], or
    /// less where no more than the requested bytes shall be read.
    pub max_gap: u64,
    /// Whether the consumer has memory of its own, and gets most reads with [`Feed::get_into`]. A loader may then leave
    /// reading to it, instead of reading ahead into buffers.
    pub into_memory: bool,
}

impl<'c> LoadContext<'c> {
    /// Runs a loader. A loader that does not call its consumer is an error, because nothing would have been loaded
    /// and the caller would not notice.
    pub(crate) fn run(
        &self,
        loader: &dyn Loader,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        let mut called = false;
        loader.run(self, reads, &mut |feed| {
            called = true;
            consumer(feed)
        })?;
        if called {
            Ok(())
        } else {
            Err(Error::invalid_argument(format!(
                "the loader `{}` did not call its consumer",
                loader.name()
            )))
        }
    }
}

/// The default of [`LoadContext::max_gap`]: reading this many unneeded bytes costs less than another request.
pub const MAX_GAP: u64 = 64 << 10;

/// Bytes of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Chunk<'c> {
    /// Borrowed from a mapped file or a source in memory.
    Borrowed(&'c [u8]),
    /// As borrowed bytes, with the source that they lie in: of a load of an `Arc<Checkpoint>`.
    Mapped(MappedBytes),
    /// In memory of the load: a pool's buffer, a part of one, or a part of a private map.
    Pooled(SharedBuffer),
}

impl Deref for Chunk<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
            Self::Pooled(bytes) => bytes,
        }
    }
}

impl Chunk<'_> {
    /// Whether the bytes belong to the source, and may change with it.
    pub(crate) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_) | Self::Mapped(_))
    }

    /// The same bytes without a lifetime. Borrowed ones are found in the checkpoint's sources, of which `file` is tried
    /// first.
    pub(crate) fn shared(self, checkpoint: &Checkpoint, file: u32) -> Chunk<'static> {
        let borrowed = match self {
            Self::Borrowed(borrowed) => borrowed,
            Self::Mapped(bytes) => return Chunk::Mapped(bytes),
            Self::Pooled(bytes) => return Chunk::Pooled(bytes),
        };
        // an empty slice has an address, and lies in no source
        if borrowed.is_empty() {
            return Chunk::Borrowed(&[]);
        }
        let sources = checkpoint.sources();
        let first = sources.get(file as usize);
        // its own file first: nearly every chunk is found there
        let found = first.into_iter().chain(sources);
        let found = found.filter_map(|source| MappedBytes::find(source, borrowed));
        // a loader of the caller's may borrow from elsewhere, which is known to last as long as the checkpoint only
        let copy = || {
            let source = Arc::new(MemorySource::new(borrowed.to_vec()));
            MappedBytes::new(source, 0..borrowed.len()).expect("memory is addressable")
        };
        Chunk::Mapped(found.into_iter().next().unwrap_or_else(copy))
    }
}

/// Copies a read to memory that must have its length: a chunk of a caller's loader may have any.
fn copy_into(chunk: Chunk<'_>, read: usize, out: &mut [u8], on_bytes: OnBytes<'_>) -> Result<()> {
    if chunk.len() != out.len() {
        return Err(on_demand::wrong_length(read, chunk.len() as u64, out.len()));
    }
    let mut copied = 0;
    let pieces = chunk.chunks(CHECK_INTERVAL);
    for (from, out) in pieces.zip(out.chunks_mut(CHECK_INTERVAL)) {
        // not before the first piece, so that a short read is never cancelled when it is complete
        if copied > 0 {
            check_cancelled(on_bytes(copied))?;
        }
        out.copy_from_slice(from);
        copied += from.len() as u64;
    }
    Ok(())
}

/// How long a thread blocks before it checks for cancellation and reports progress again.
pub(crate) const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// How long a buffer is waited for when the pool is exhausted. The wait is bounded because the buffers may be held by
/// the thread that waits: what is loaded may be kept.
pub(crate) const POOL_TIMEOUT: Duration = Duration::from_secs(5);

/// A buffer of `nbytes` bytes. If the pool is exhausted, waits up to [`POOL_TIMEOUT`] and calls `flow` in between.
pub(crate) fn get_buffer(
    pool: &BufferPool,
    nbytes: u64,
    flow: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Buffer> {
    // a tensor of more than 4 GiB cannot be loaded by a 32-bit program
    let len = usize::try_from(nbytes).map_err(|_| {
        Error::invalid_argument(format!(
            "a buffer of {nbytes} bytes is more than this machine can address"
        ))
    })?;
    // in short waits, so that a cancelled run does not sit out the whole timeout
    let mut waits = POOL_TIMEOUT.as_millis() / WAIT_INTERVAL.as_millis();
    loop {
        match pool.get_timeout(len, WAIT_INTERVAL) {
            // another thread may return a buffer meanwhile
            Err(zeropool::GetError::TimedOut { .. }) if waits > 1 => waits -= 1,
            found => return found.map_err(|e| pool_error(e, pool)),
        }
        check_cancelled(flow())?;
    }
}

/// A pool's error as an error of this crate.
fn pool_error(error: zeropool::GetError, pool: &BufferPool) -> Error {
    use zeropool::GetError::{BudgetExhausted, OutOfMemory, Pin, Register, TimedOut, TooLarge};
    match error {
        // all three mean that the budget is too small for what is held at once, so they have one remedy
        BudgetExhausted { len, .. } | TooLarge { len, .. } | TimedOut { len } => {
            let what = format!("a buffer of the pool ({error})");
            let allowed = pool.budget() as u64;
            over(len as u64, allowed, what, "budget")
        }
        OutOfMemory { source, .. } | Pin { source, .. } | Register { source, .. } => source.into(),
        other => std::io::Error::other(other).into(),
    }
}
