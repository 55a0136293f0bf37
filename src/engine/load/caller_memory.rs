//! Loading into memory of the caller: tensors are cut into pieces, which several threads fill in any order.
//!
//! A piece is one read of the loader, not longer than the extents that reads share, so that no loader needs a buffer as long
//! as a tensor. Each has its own part of the caller's memory, as `&mut [u8]`, and all threads end before the run does:
//! nothing writes to that memory afterwards, whatever ended the run.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};

use super::pread::shared_extent;
use super::runs::{gather, read_transformed, to_usize};
use super::tasks::{ByteOrigin, LoadTask, MAX_CLOSE_RUNS, get};
use super::{Feed, LoadContext, WAIT_INTERVAL};
use crate::base::error::Result;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::{AtomicUsize, PoisonMutex};
use crate::base::threads::{on_watched_threads, thread_count_for, work_off};
use crate::read::catalog::ByteRange;
use crate::read::tensor::PieceChecksum;

/// The pieces of all tensors, in the order of their tasks.
pub(super) struct IntoPieces<'t, 'c, 'b> {
    /// Bytes of the longest piece: a loader merges no reads beyond it.
    longest: u64,
    /// Runs of a slice with at most this many bytes between them are read together.
    max_gap: u64,
    /// The list for the loader.
    reads: Vec<ByteRange>,
    targets: Vec<PieceTarget<'t, 'c>>,
    pieces: Vec<TensorPiece<'b>>,
}

/// A tensor, or a slice of one, that pieces are parts of.
struct PieceTarget<'t, 'c> {
    task: &'t LoadTask<'c>,
    /// The number of pieces that are not filled.
    missing: AtomicUsize,
    /// The checksum of each piece, if a checksum covers the tensor.
    checksums: Box<[OnceLock<PieceChecksum>]>,
}

/// A part of a tensor that one thread fills.
struct TensorPiece<'b> {
    /// Index of the tensor.
    target: usize,
    source: PieceSource,
    out: &'b mut [u8],
}

enum PieceSource {
    /// A read of the loader.
    Read {
        read: usize,
        /// The runs of the slice that are gathered from it; `None` if all of its bytes belong to the piece.
        runs: Option<Range<u64>>,
        /// Index among the pieces of the tensor.
        number: usize,
    },
    /// The whole tensor or slice, by no read of the loader.
    Transformed,
}

impl<'t, 'c, 'b> IntoPieces<'t, 'c, 'b> {
    /// Cuts tasks, each with memory of its length, for a loader with this context.
    pub(super) fn new(
        tasks: impl Iterator<Item = (&'t LoadTask<'c>, &'b mut [u8])>,
        context: &LoadContext<'_>,
    ) -> Self {
        let mut all = Self {
            longest: shared_extent(context.read_ahead),
            max_gap: context.max_gap,
            reads: Vec::new(),
            targets: Vec::new(),
            pieces: Vec::new(),
        };
        for (task, out) in tasks {
            let before = all.pieces.len();
            match task.origin {
                ByteOrigin::Transformed => all.add(PieceSource::Transformed, out),
                _ => all.cut(task, out),
            }
            let pieces = all.pieces.len() - before;
            // a transformed tensor is checked by what reads it
            let checked = task.origin != ByteOrigin::Transformed && task.tensor.has_checksum();
            let checksums = (0..if checked { pieces } else { 0 }).map(|_| OnceLock::new());
            all.targets.push(PieceTarget {
                task,
                missing: AtomicUsize::new(pieces),
                checksums: checksums.collect(),
            });
        }
        all
    }

    /// Adds the pieces of a tensor that the loader reads.
    fn cut(&mut self, task: &LoadTask<'_>, mut out: &'b mut [u8]) {
        let (layout, longest) = (&task.layout, self.longest);
        let (first, file) = (self.reads.len(), task.tensor.info().bytes);
        // too many runs are read together wherever they are: each piece costs memory
        let max_gap = match layout.runs.count() {
            0..=MAX_CLOSE_RUNS => self.max_gap,
            _ => longest,
        };
        let mut add = |bytes: Range<u64>, runs, out| {
            let read = self.reads.len();
            self.reads.push(ByteRange {
                start: file.start.saturating_add(bytes.start),
                len: bytes.end - bytes.start,
                ..file
            });
            let number = read - first;
            self.add(PieceSource::Read { read, runs, number }, out);
        };
        if out.is_empty() {
            // no bytes, but the header of a member is verified
            let start = layout.first().start;
            return add(start..start, None, out);
        }
        let mut run = 0;
        while run < layout.runs.count() {
            let begin = run;
            let mut bytes = layout.run(run);
            let mut nbytes = bytes.end - bytes.start;
            run += 1;
            // short runs: one read for as many as fit, with the bytes between them
            while run < layout.runs.count() {
                let next = layout.run(run);
                if next.start - bytes.end > max_gap || next.end - bytes.start > longest {
                    break;
                }
                nbytes += next.end - next.start;
                bytes.end = next.end;
                run += 1;
            }
            let mut out = out
                .split_off_mut(..to_usize(nbytes))
                .expect("as long as the runs");
            if run - begin > 1 {
                add(bytes, Some(begin..run), out);
                continue;
            }
            while !out.is_empty() {
                let end = bytes.end.min(bytes.start + longest);
                let part = out
                    .split_off_mut(..to_usize(end - bytes.start))
                    .expect("as long as the run");
                add(bytes.start..end, None, part);
                bytes.start = end;
            }
        }
    }

    fn add(&mut self, source: PieceSource, out: &'b mut [u8]) {
        let target = self.targets.len();
        self.pieces.push(TensorPiece {
            target,
            source,
            out,
        });
    }

    /// The run that fills the pieces, and the reads for its loader.
    pub(super) fn into_run(
        self,
        control: &RunControl<'c>,
    ) -> (IntoRun<'t, 'c, 'b>, Vec<ByteRange>) {
        let bytes = |pieces: &mut dyn Iterator<Item = &TensorPiece<'b>>| {
            let lens = pieces.map(|piece| piece.out.len() as u64);
            lens.fold(0, u64::saturating_add)
        };
        let is_work = |piece: &&TensorPiece<'_>| {
            let checked = !self.targets[piece.target].checksums.is_empty();
            checked || matches!(piece.source, PieceSource::Transformed)
        };
        let total = bytes(&mut self.pieces.iter());
        let run = IntoRun {
            nbytes: total,
            work: bytes(&mut self.pieces.iter().filter(is_work)),
            count: self.pieces.len(),
            targets: self.targets,
            pieces: PoisonMutex::new(self.pieces.into_iter()),
            progress: RunProgress::new(total, control),
        };
        (run, self.reads)
    }
}

/// A load into memory of the caller, in progress.
pub(super) struct IntoRun<'t, 'c, 'b> {
    /// Bytes of all pieces.
    nbytes: u64,
    /// Bytes of pieces that are inflated, gathered or checked.
    work: u64,
    /// The number of pieces.
    count: usize,
    targets: Vec<PieceTarget<'t, 'c>>,
    /// The pieces that no thread has started.
    pieces: PoisonMutex<std::vec::IntoIter<TensorPiece<'b>>>,
    pub(super) progress: RunProgress<'c>,
}

impl<'c> IntoRun<'_, 'c, '_> {
    /// Fills every piece, with as many threads as the loader needs for reading and `threads` (0 for one per core) for the
    /// work on the bytes.
    pub(super) fn fill_all(&self, feed: &dyn Feed<'c>, threads: usize) -> Result<()> {
        let copying = || thread_count_for(threads, self.nbytes);
        let reading = feed.reading_threads().unwrap_or_else(copying);
        let working = match self.work {
            0 => 1,
            work => thread_count_for(threads, work),
        };
        if self.count <= 1 {
            // a thread would cost more than the piece
            self.run_worker(feed);
        } else {
            let threads = reading.max(working).clamp(1, self.count);
            let worker = || self.run_worker(feed);
            // progress is reported from this thread, as all workers may be blocked in reads; they notice a cancellation
            // themselves
            let watch = || {
                let _ = self.progress.flow();
            };
            on_watched_threads("load", threads, &worker, WAIT_INTERVAL, &watch);
        }
        self.progress.failure.outcome()
    }

    pub(super) fn run_worker(&self, feed: &dyn Feed<'c>) {
        let next = || {
            // the critical section moves one item out of a list, which is consistent after a panic
            let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
            pieces.next()
        };
        work_off(&self.progress.failure, next, |piece| self.fill(piece, feed));
    }

    fn fill(&self, piece: TensorPiece<'_>, feed: &dyn Feed<'c>) -> Result<()> {
        let target = &self.targets[piece.target];
        let tensor = &target.task.tensor;
        let mut progress = self.progress.task(piece.out.len() as u64);
        match piece.source {
            PieceSource::Transformed => {
                tensor.reads(&mut |bytes, _| feed.on_direct_read(bytes));
                read_transformed(tensor, &target.task.layout, piece.out, &mut progress)?;
            }
            PieceSource::Read { read, runs, number } => {
                // once for each tensor: the header of its member
                if number == 0 {
                    tensor
                        .check_bytes()
                        .into_iter()
                        .for_each(|bytes| feed.on_direct_read(bytes));
                }
                match runs {
                    Some(runs) => {
                        let covering = get(feed, read, 0, &mut progress)?;
                        let (layout, out) = (&target.task.layout, &mut &mut *piece.out);
                        gather(layout, runs, &covering, 0, out, &mut progress)?;
                    }
                    None => feed.get_into(read, piece.out, &mut |bytes| {
                        progress.advance_to(bytes);
                        progress.flow()
                    })?,
                }
                if let Some(checksum) = target.checksums.get(number) {
                    // computed while the bytes are in the processor's caches; empty, as each piece is filled once
                    let _ = checksum.set(PieceChecksum::of(piece.out));
                }
                // acquire and release: the last thread sees the checksums of the others
                if target.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    tensor.verify_pieces(target.checksums.iter().filter_map(OnceLock::get))?;
                }
            }
        }
        progress.finish()
    }
}
