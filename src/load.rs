//! Loaders: bringing the bytes of a checkpoint, at the speed of the device.
//!
//! A [`Loader`] is given the reads that will be needed, in the order in which they will be taken, and lends a
//! [`Feed`] to take them from. How far it runs ahead, in what pieces it reads and by which system calls is its own
//! affair: whoever takes sees the same bytes.
//!
//! | loader | how | when |
//! |---|---|---|
//! | [`Mapped`] | lends the mapped file, advised ahead | warm, and nobody needs to own the bytes |
//! | [`Pread`] | threads that read into pool buffers | warm and owned; network file systems |
//! | [`Uring`] | io_uring, a queue of reads into pool buffers | cold; on one core |
//!
//! [`Recording`] wraps any of them, and tells afterwards what was read in which order.
//!
//! [`Pread`] and [`Uring`] read around the page cache (`O_DIRECT`) if asked to, where the file system can.
//! [`choose`] picks one from what can be seen of the files, and says why.

mod belt;
mod choose;
mod coalesce;
mod cut;
#[cfg(target_os = "linux")]
mod direct;
mod facts;
mod fault;
mod loaded;
mod mapped;
mod pread;
mod record;
mod run;
mod tensors;
#[cfg(all(target_os = "linux", feature = "uring"))]
mod uring;
mod way;

use std::fmt::Debug;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::Duration;

use zeropool::{Buffer, BufferPool, Shared};

use crate::catalog::ByteRange;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::execute::unless_stopped;
use crate::limits::over;

pub use choose::{Choice, choose};
pub use coalesce::{Coalesced, Extent, Place, coalesce};
pub use cut::Cut;
pub use facts::{Facts, Kind};
pub use loaded::{Loaded, LoadedTensor, Stream};
pub use mapped::Mapped;
pub use pread::Pread;
pub use record::Recording;
pub use tensors::{Load, load};
#[cfg(all(target_os = "linux", feature = "uring"))]
pub use uring::Uring;
pub use way::{By, Direct, Way};

/// Brings the bytes of reads, in their order.
pub trait Loader: Debug + Send + Sync {
    /// `mmap`, `pread`, `uring`, …
    fn name(&self) -> &'static str;

    /// Begins to bring `reads`, and calls `body` once with what to take them from. What it started has ended when it
    /// returns; what `body` did not take is dropped.
    ///
    /// # Errors
    /// What `body` returns. A read that fails ends the run: it is the error of every [`take`](Feed::take) that waits.
    fn run<'c>(&self, source: &Reading<'c>, reads: &[ByteRange], body: Body<'_, 'c>) -> Result<()>;
}

/// What is done with a feed.
pub type Body<'b, 'c> = &'b mut (dyn FnMut(&dyn Feed<'c>) -> Result<()> + Send);

/// Hears how many bytes of a read have come, and may give it up.
pub type Coming<'w> = &'w mut dyn FnMut(u64) -> ControlFlow<()>;

/// Where reads are taken from, by any thread.
pub trait Feed<'c>: Sync {
    /// The bytes of the read with this number; waits for them. Each may be taken once, in about the order of the
    /// list: a loader does not read far ahead of the first one that is missing.
    ///
    /// # Errors
    /// The system's, with file and offset; no memory within the pool's budget; a number that was taken before.
    fn take(&self, read: usize) -> Result<Chunk<'c>>;

    /// As [`take`](Self::take), for who may want to stop while bytes come: `watch` hears how many of the read's have, at
    /// least every 64 MiB and ten times a second, and gives the read up if it breaks. Of a loader that does not
    /// implement this, whole reads are waited for.
    ///
    /// # Errors
    /// As [`take`](Self::take), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if `watch` says so.
    fn take_watched(&self, read: usize, watch: Coming<'_>) -> Result<Chunk<'c>> {
        let _ = watch;
        self.take(read)
    }

    /// Hears of bytes that are read without it: of tensors that are inflated or gathered, of what is checked in front of
    /// a member. For who records or counts; loaders need not care.
    fn beside(&self, bytes: ByteRange) {
        let _ = bytes;
    }

    /// How the bytes that were taken were brought; `None` of a loader that does not say.
    fn way(&self) -> Option<Way> {
        None
    }
}

/// A loader that is used by several.
impl<L: Loader + ?Sized> Loader for Arc<L> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn run<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        (**self).run(reading, reads, body)
    }
}

/// What loaders need besides the list of reads.
#[derive(Clone, Debug)]
pub struct Reading<'c> {
    /// The files.
    pub checkpoint: &'c Checkpoint,
    /// Where buffers come from.
    pub pool: BufferPool,
    /// Bytes that may be read before they are taken; more only while somebody waits for them.
    pub ahead: u64,
    /// Unwanted bytes between two reads that are read along rather than asked around: [`GAP`], or less where no more
    /// than what is asked for shall be read.
    pub gap: u64,
}

impl<'c> Reading<'c> {
    /// Has a loader bring these reads; one that lends no feed is an error, or nothing would have been loaded unnoticed.
    pub(crate) fn bring(
        &self,
        loader: &dyn Loader,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        let mut called = false;
        loader.run(self, reads, &mut |feed| {
            called = true;
            body(feed)
        })?;
        if called {
            Ok(())
        } else {
            Err(Error::misuse("the loader did not lend a feed"))
        }
    }
}

/// Unwanted bytes that cost less than another read.
pub const GAP: u64 = 64 << 10;

/// Bytes of a file.
#[derive(Clone, Debug)]
pub enum Chunk<'c> {
    /// Where the file is mapped or in memory.
    Lent(&'c [u8]),
    /// In a pool's buffer, or in a part of one.
    Pooled(Shared),
}

impl Deref for Chunk<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Pooled(bytes) => bytes,
        }
    }
}

/// How long something is waited for until it is asked whether to go on.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How long a full pool is waited for where nothing may come back.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A buffer where nothing may come back: a full pool is waited for, but not for ever.
pub(crate) fn room(
    pool: &BufferPool,
    nbytes: u64,
    flow: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Buffer> {
    let len =
        usize::try_from(nbytes).map_err(|_| Error::misuse("more bytes than can be addressed"))?;
    let mut waits = PATIENCE.as_millis() / TICK.as_millis();
    loop {
        match pool.get_timeout(len, TICK) {
            Err(zeropool::GetError::TimedOut { .. }) if waits > 1 => waits -= 1,
            found => return found.map_err(|e| refused(e, pool)),
        }
        unless_stopped(flow())?;
    }
}

/// Why a pool gave no buffer, as an error of ours.
pub(crate) fn refused(error: zeropool::GetError, pool: &BufferPool) -> Error {
    use zeropool::GetError::{OutOfMemory, Pin, Spent, TimedOut, TooLarge};
    match error {
        Spent { len, .. } | TooLarge { len, .. } | TimedOut { len } => {
            let what = format!("a buffer of the pool ({error})");
            let allowed = pool.budget() as u64;
            over(len as u64, allowed, what, "budget")
        }
        OutOfMemory { source, .. } | Pin { source, .. } => source.into(),
        other => std::io::Error::other(other).into(),
    }
}
