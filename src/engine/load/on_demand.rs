//! Reads that are made when they are consumed, by the thread that consumes them: of files that are not mapped, and into
//! memory of the consumer.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use zeropool::BufferPool;

use super::report::{IoReport, ReportBuilder};
use super::{Chunk, Feed, LoadContext, OnBytes, get_buffer};
use crate::base::error::{Error, Result};
use crate::base::progress::check_cancelled;
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;

/// Reads bytes of a file into `out`, which has their length, with at most `step` bytes in one call.
pub(super) fn read_into(
    checkpoint: &Checkpoint,
    bytes: ByteRange,
    out: &mut [u8],
    step: usize,
    on_bytes: OnBytes<'_>,
) -> Result<()> {
    let mut start = bytes.start;
    for out in out.chunks_mut(step) {
        // before the first call nothing has been read, and nothing is reported
        if start > bytes.start {
            check_cancelled(on_bytes(start - bytes.start))?;
        }
        let failed = |error: Error, at| checkpoint.place(error.at(at), bytes.file);
        let read = checkpoint.source(bytes.file).read_at(start, out);
        let read = read.map_err(|e| failed(e.into(), start))?;
        // `read_at` repeats short reads, so this is the end of the file
        if read < out.len() {
            return Err(failed(truncated().into(), start + read as u64));
        }
        start += read as u64;
    }
    Ok(())
}

/// Like [`read_into`], into a buffer of the pool.
pub(super) fn read_pooled(
    checkpoint: &Checkpoint,
    pool: &BufferPool,
    bytes: ByteRange,
    step: usize,
    on_bytes: OnBytes<'_>,
) -> Result<Chunk<'static>> {
    // the wait for memory can be cancelled, and reports no bytes
    let mut buffer = get_buffer(pool, bytes.len, &mut || on_bytes(0))?;
    read_into(checkpoint, bytes, &mut buffer, step, on_bytes)?;
    Ok(Chunk::Pooled(buffer.freeze()))
}

/// The read with this number, if the list has one and `out`, if there is one, has its length.
pub(super) fn listed(reads: &[ByteRange], read: usize, out: Option<usize>) -> Result<ByteRange> {
    let unknown = || {
        let count = reads.len();
        Error::invalid_argument(format!("read {read} does not exist; the list has {count}"))
    };
    let bytes = *reads.get(read).ok_or_else(unknown)?;
    match out {
        Some(len) if len as u64 != bytes.len => Err(wrong_length(read, bytes.len, len)),
        _ => Ok(bytes),
    }
}

/// The error of memory that has another length than a read.
pub(super) fn wrong_length(read: usize, has: u64, out: usize) -> Error {
    Error::invalid_argument(format!(
        "read {read} has {has} bytes, and the memory for it {out}"
    ))
}

/// The error for a file that is shorter than when it was opened.
pub(super) fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file ends here, and was longer when it was opened",
    )
}

/// A feed that reads nothing ahead, but straight into the memory of its consumer. The threads of the consumer read.
pub(super) struct OnDemandFeed<'r, 'c> {
    checkpoint: &'c Checkpoint,
    pool: &'r BufferPool,
    reads: &'r [ByteRange],
    threads: usize,
    /// Bytes of one system call, after which a read can be cancelled.
    step: usize,
    report: Arc<ReportBuilder>,
}

impl<'r, 'c> OnDemandFeed<'r, 'c> {
    pub(super) fn new(
        context: &'r LoadContext<'c>,
        reads: &'r [ByteRange],
        threads: usize,
        step: usize,
        report: Arc<ReportBuilder>,
    ) -> Self {
        Self {
            checkpoint: context.checkpoint,
            pool: &context.pool,
            reads,
            threads,
            step,
            report,
        }
    }
}

impl<'c> Feed<'c> for OnDemandFeed<'_, 'c> {
    fn get(&self, read: usize) -> Result<Chunk<'c>> {
        self.get_cancellable(read, &mut |_| ControlFlow::Continue(()))
    }

    fn get_cancellable(&self, read: usize, on_bytes: OnBytes<'_>) -> Result<Chunk<'c>> {
        let bytes = listed(self.reads, read, None)?;
        read_pooled(self.checkpoint, self.pool, bytes, self.step, on_bytes)
    }

    fn get_into(&self, read: usize, out: &mut [u8], on_bytes: OnBytes<'_>) -> Result<()> {
        let bytes = listed(self.reads, read, Some(out.len()))?;
        read_into(self.checkpoint, bytes, out, self.step, on_bytes)
    }

    fn reading_threads(&self) -> Option<usize> {
        Some(self.threads)
    }

    fn report(&self) -> Option<IoReport> {
        Some(self.report.report())
    }
}
