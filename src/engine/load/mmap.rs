//! Loading by borrowing from the mapped file.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use zeropool::BufferPool;

use super::on_demand::{listed, read_into, read_pooled, truncated};
use super::report::{Backend, DirectIo, IoReport};
use super::{Chunk, Consumer, Feed, LoadContext, Loader, OnBytes};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::progress::{CHECK_INTERVAL, check_cancelled};
use crate::base::sync::{AtomicBool, AtomicU64, PoisonMutex};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;

/// Borrows bytes of files that are mapped, and reads the others into the pool when they are consumed.
#[derive(Clone, Copy, Debug)]
pub struct MmapLoader {
    window: u64,
    drop_behind: bool,
}

impl Default for MmapLoader {
    fn default() -> Self {
        Self {
            window: 32 << 20,
            drop_behind: false,
        }
    }
}

impl MmapLoader {
    /// Prefetches 32 MiB ahead of the consumer, and evicts nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that the system is advised to prefetch ahead of the consumer (`MADV_WILLNEED`). With 0 the kernel's own
    /// read-ahead decides. Default 32 MiB.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Whether pages behind the consumer are released, from this process and from the page cache: for files that are
    /// read once and exceed memory. Default off.
    #[must_use]
    pub fn drop_behind(mut self, drop: bool) -> Self {
        self.drop_behind = drop;
        self
    }
}

impl Loader for MmapLoader {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn run<'c>(
        &self,
        context: &LoadContext<'c>,
        reads: &[ByteRange],
        consumer: Consumer<'_, 'c>,
    ) -> Result<()> {
        consumer(&MappedFeed {
            checkpoint: context.checkpoint,
            pool: &context.pool,
            reads,
            // at least 1 MiB: a smaller window would advise page by page
            window: self.window.min(context.read_ahead.max(1 << 20)),
            drop_behind: self.drop_behind,
            consumed: AtomicU64::new(0),
            advice: PoisonMutex::default(),
            has_copied: AtomicBool::new(false),
        })
    }
}

/// How far the list of reads was advised.
#[derive(Default)]
struct AdvisedReads {
    /// Reads in front of this one were prefetched.
    prefetched: usize,
    /// Bytes of the reads that were prefetched.
    prefetched_bytes: u64,
    /// Reads in front of this one were released.
    released: usize,
    /// Bytes of the reads that were released.
    released_bytes: u64,
}

struct MappedFeed<'r, 'c> {
    checkpoint: &'c Checkpoint,
    pool: &'r BufferPool,
    reads: &'r [ByteRange],
    window: u64,
    drop_behind: bool,
    /// Bytes that were consumed. Only steers the advice, so relaxed accesses suffice.
    consumed: AtomicU64,
    advice: PoisonMutex<AdvisedReads>,
    /// Whether a read could not be borrowed.
    has_copied: AtomicBool,
}

impl<'c> Feed<'c> for MappedFeed<'_, 'c> {
    fn get(&self, read: usize) -> Result<Chunk<'c>> {
        self.get_cancellable(read, &mut |_| ControlFlow::Continue(()))
    }

    fn get_cancellable(&self, read: usize, on_bytes: OnBytes<'_>) -> Result<Chunk<'c>> {
        let bytes = listed(self.reads, read, None)?;
        self.advise(read, bytes.len, on_bytes)?;
        // bytes in memory count as mapped; a reader, a closure, or a file that cannot be mapped is copied
        let Some(map) = self.checkpoint.source(bytes.file).mapped() else {
            self.has_copied.store(true, Ordering::Relaxed);
            return read_pooled(self.checkpoint, self.pool, bytes, CHECK_INTERVAL, on_bytes);
        };
        let range = usize::try_from(bytes.start)
            .ok()
            .zip(usize::try_from(bytes.end()).ok());
        let borrowed = range.and_then(|(start, end)| map.get(start..end));
        let truncated = || Error::new(ErrorKind::Io(truncated())).at(bytes.start);
        borrowed
            .map(Chunk::Borrowed)
            .ok_or_else(|| self.checkpoint.place(truncated(), bytes.file))
    }

    fn get_into(&self, read: usize, out: &mut [u8], on_bytes: OnBytes<'_>) -> Result<()> {
        let bytes = listed(self.reads, read, Some(out.len()))?;
        if self.checkpoint.source(bytes.file).mapped().is_some() {
            return super::copy_into(self.get_cancellable(read, on_bytes)?, read, out, on_bytes);
        }
        self.advise(read, bytes.len, on_bytes)?;
        self.has_copied.store(true, Ordering::Relaxed);
        read_into(self.checkpoint, bytes, out, CHECK_INTERVAL, on_bytes)
    }

    fn report(&self) -> Option<IoReport> {
        let copied = self.has_copied.load(Ordering::Relaxed);
        Some(IoReport {
            backend: if copied {
                Backend::Threads
            } else {
                Backend::Mmap
            },
            direct: DirectIo::No,
            fallback: copied.then(|| "not mapped: read one by one".to_owned()),
        })
    }
}

impl MappedFeed<'_, '_> {
    /// Prefetches up to the window, once half of it was consumed, and releases reads that lie more than two windows
    /// behind.
    fn advise(&self, read: usize, len: u64, on_bytes: OnBytes<'_>) -> Result<()> {
        let consumed = self
            .consumed
            .fetch_add(len, Ordering::Relaxed)
            .saturating_add(len);
        // if another thread holds the lock, it is giving the advice, and this thread has nothing to wait for
        let Ok(mut advice) = self.advice.try_lock() else {
            return Ok(());
        };
        // half a window of hysteresis: one system call per half window instead of one per read
        if self.window > 0 && advice.prefetched_bytes.saturating_sub(consumed) <= self.window / 2 {
            while advice.prefetched_bytes.saturating_sub(consumed) < self.window
                && let Some(next) = self.reads.get(advice.prefetched)
            {
                // counted even if it is not advised, so that the position follows the list
                advice.prefetched += 1;
                advice.prefetched_bytes = advice.prefetched_bytes.saturating_add(next.len);
                // the read that is being consumed will be touched before advice could help
                if advice.prefetched > read + 1 {
                    self.prefetch(*next, on_bytes)?;
                }
            }
        }
        // two windows behind: a consumer may still use the last tensors that it got
        let behind = 2 * self.window.max(1 << 20);
        while self.drop_behind
            && advice.released < read
            && consumed.saturating_sub(advice.released_bytes) > behind
        {
            let bytes = self.reads[advice.released];
            self.checkpoint
                .source(bytes.file)
                .dont_need(bytes.start, bytes.len);
            advice.released += 1;
            advice.released_bytes = advice.released_bytes.saturating_add(bytes.len);
        }
        Ok(())
    }

    /// Advises the system to prefetch a read, in steps: the system call may block while it queues a large one.
    fn prefetch(&self, bytes: ByteRange, on_bytes: OnBytes<'_>) -> Result<()> {
        let mut advised = 0;
        while advised < bytes.len {
            let step = (CHECK_INTERVAL as u64).min(bytes.len - advised);
            self.checkpoint
                .source(bytes.file)
                .will_need(bytes.start + advised, step);
            advised += step;
            if advised < bytes.len {
                check_cancelled(on_bytes(0))?;
            }
        }
        Ok(())
    }
}
