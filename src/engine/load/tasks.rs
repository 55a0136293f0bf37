//! One load: which reads make which tensors, and the threads that make them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{OnceLock, PoisonError};

use zeropool::{Buffer, BufferPool, DividedBuffer};

use super::loaded::LoadedTensor;
use super::runs::{gather, read_transformed, to_usize};
use super::slices::CheckpointSlices;
use super::{Chunk, Feed, get_buffer};
use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::progress::{RunControl, RunProgress, TaskProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{NumberQueue, on_threads, thread_count_for, work_off};
use crate::read::catalog::{ByteRange, Catalog};
use crate::read::slice::{SliceLayout, TensorSlice};
use crate::read::tensor::Tensor;

/// A tensor, or a slice of one, that is to be loaded.
pub(super) struct LoadTask<'c> {
    pub(super) tensor: Tensor<'c>,
    pub(super) slice: TensorSlice,
    pub(super) layout: SliceLayout,
    pub(super) origin: ByteOrigin,
}

impl<'c> LoadTask<'c> {
    /// Bytes of the slice.
    pub(super) fn nbytes(&self) -> u64 {
        self.layout.nbytes()
    }

    fn loaded(&self, bytes: Chunk<'c>) -> LoadedTensor<'c> {
        let (slice, shape) = (self.slice.clone(), self.layout.shape.clone());
        LoadedTensor::new(self.tensor.info(), slice, shape, bytes)
    }
}

/// Where the bytes of a task come from. Numbers are indices into the loader's list of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrigin {
    /// One read that has exactly these bytes.
    Read(usize),
    /// Reads from this one on, each of `per_read` runs of the slice and the bytes between them.
    Runs { first: usize, per_read: u64 },
    /// The task with this index, which has the same bytes.
    SameAs(usize),
    /// No read of the loader: the tensor is inflated, gathered or byte-swapped by [`Tensor`].
    Transformed,
}

/// Bytes between two reads of a slice that are read along with them: no page is read that has no byte of the slice.
pub(super) const SLICE_GAP: u64 = 4095;

/// Runs of one slice, no further apart than [`SLICE_GAP`], that are read one by one. More are covered by fewer reads, which
/// a loader would make of them anyway, since each read of the list costs memory and a buffer slice.
pub(super) const MAX_CLOSE_RUNS: u64 = 1 << 16;

/// Like [`MAX_CLOSE_RUNS`], for runs that are further apart: the bytes between them are not read.
const MAX_RUNS: u64 = 1 << 20;

/// Memory of a read: its entries in the list, in the schedule of a loader, and in its buffer.
const READ: u64 = 96;

/// The least that a task counts when threads are assigned: starting a tensor takes about as long as checking this many
/// bytes, and many small tensors are worth a second thread (experiment 45 in `docs/perf-experiments.md`).
const MIN_TASK_BYTES: u64 = 4 << 10;

/// The reads for a loader, and the tasks that use them. `share`: whether a task may use the bytes of an earlier one,
/// which requires that all loaded tensors are kept.
pub(super) fn plan_tasks<'c>(
    catalog: &'c Catalog,
    tensors: impl Iterator<Item = Tensor<'c>>,
    slices: &CheckpointSlices<'_, '_>,
    share: bool,
    budget: &Budget,
) -> Result<(Vec<ByteRange>, Vec<LoadTask<'c>>)> {
    let mut reads = Vec::new();
    let mut known = HashMap::new();
    let mut tasks: Vec<LoadTask<'c>> = Vec::new();
    for tensor in tensors {
        let info = tensor.info();
        for slice in slices.of(catalog, info)? {
            let layout = if tensor.readable().is_ok() {
                slice.layout("tensor", &info.name, &info.shape, &info.encoding)?
            } else {
                // refused when it is read: a stream may end in front of it
                SliceLayout::of_no_elements(info.shape.clone())
            };
            let number = tasks.len();
            let bytes = info.bytes;
            let range = |run: std::ops::Range<u64>| ByteRange {
                start: bytes.start.saturating_add(run.start),
                len: run.end - run.start,
                ..bytes
            };
            let first = reads.len();
            // a checksum covers the whole tensor, so that a slice of a checked one is made from all of it
            let is_checked_slice = tensor.has_integrity_check() && !layout.is_whole();
            let origin = if !tensor.is_stored_as_values() || is_checked_slice {
                ByteOrigin::Transformed
            } else if layout.runs.count() > 1 {
                let per_read = layout.runs_per_read(SLICE_GAP, MAX_CLOSE_RUNS, MAX_RUNS);
                let count = layout.runs.count() / per_read;
                // the shape of a tensor decides how many there are
                budget.memory(count.saturating_mul(READ), "the reads of a slice")?;
                reads.extend((0..count).map(|i| range(layout.covering(i * per_read, per_read))));
                ByteOrigin::Runs { first, per_read }
            } else {
                let run = layout.first();
                match known.entry((bytes.file, bytes.start, run.clone())) {
                    // tied weights are one byte range under two names: read once, and both tensors share the buffer. A
                    // stream cannot, since the consumer may have dropped the first
                    Entry::Occupied(first) if share => ByteOrigin::SameAs(*first.get()),
                    entry => {
                        entry.insert_entry(number);
                        reads.push(range(run));
                        ByteOrigin::Read(first)
                    }
                }
            };
            tasks.push(LoadTask {
                tensor,
                slice,
                layout,
                origin,
            });
        }
    }
    Ok((reads, tasks))
}

/// The largest alignment that every buffer of a pool has.
pub(super) const MAX_ALIGN: usize = 64;

/// How loaded bytes are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryOptions {
    /// Whether tensors may borrow from the map.
    pub(super) borrow_mapped: bool,
    /// Addresses of tensors are multiples of it: a power of two up to [`MAX_ALIGN`].
    pub(super) align: usize,
}

/// A load in progress.
pub(super) struct LoadRun<'r, 'c> {
    pool: &'r BufferPool,
    options: MemoryOptions,
    /// If the checkpoint is opened privately: a private map of each file, from the first tensor of it on.
    private_maps: Vec<OnceLock<Option<PoisonMutex<DividedBuffer>>>>,
    tasks: &'r [LoadTask<'c>],
    pub(super) progress: RunProgress<'c>,
    /// One per task.
    loaded: Vec<OnceLock<Chunk<'c>>>,
    /// The indices of tasks that no thread has started.
    numbers: NumberQueue,
}

impl<'r, 'c> LoadRun<'r, 'c> {
    pub(super) fn new(
        pool: &'r BufferPool,
        options: MemoryOptions,
        tasks: &'r [LoadTask<'c>],
        control: &RunControl<'c>,
    ) -> Self {
        let total = tasks
            .iter()
            .map(LoadTask::nbytes)
            .fold(0, u64::saturating_add);
        let files = tasks.first().map(|task| task.tensor.checkpoint());
        let files = files.filter(|checkpoint| options.borrow_mapped && checkpoint.is_private());
        let files = files.map_or(0, |checkpoint| checkpoint.sources().len());
        let private_maps = std::iter::repeat_with(OnceLock::new).take(files).collect();
        Self {
            pool,
            options,
            private_maps,
            tasks,
            progress: RunProgress::new(total, control),
            loaded: tasks.iter().map(|_| OnceLock::new()).collect(),
            numbers: NumberQueue::below(tasks.len() as u64),
        }
    }

    /// Loads every tensor. Starts threads only for work besides waiting: for tensors that are checked, gathered or
    /// transformed.
    pub(super) fn load_all(&self, feed: &dyn Feed<'c>, threads: usize) -> Result<()> {
        let has_work = |task: &&LoadTask<'_>| {
            let waits = matches!(task.origin, ByteOrigin::Read(_) | ByteOrigin::SameAs(_));
            task.tensor.has_integrity_check() || !waits
        };
        // threads are worth starting only for work on the bytes; waiting for reads needs none
        let (count, bytes) =
            self.tasks
                .iter()
                .filter(has_work)
                .fold((0, 0u64), |(count, bytes), task| {
                    let task_bytes = task.nbytes().max(MIN_TASK_BYTES);
                    (count + 1, bytes.saturating_add(task_bytes))
                });
        let threads = thread_count_for(threads, bytes).min(count);
        on_threads("load", threads, &|| self.run_worker(feed));
        self.progress.failure.outcome()
    }

    pub(super) fn run_worker(&self, feed: &dyn Feed<'c>) {
        work_off(
            &self.progress.failure,
            || self.numbers.next(),
            |number| {
                let number = usize::try_from(number).expect("an index of a list");
                if let Some(chunk) = self.load_task(&self.tasks[number], feed)? {
                    // the cell is empty: each number is taken by one worker
                    let _ = self.loaded[number].set(chunk);
                }
                Ok(())
            },
        );
    }

    /// The next tensor of a stream; `None` after the last.
    pub(super) fn load_next(&self, feed: &dyn Feed<'c>) -> Option<Result<LoadedTensor<'c>>> {
        let number = self.numbers.next()?;
        let task = &self.tasks[usize::try_from(number).expect("an index of a list")];
        let chunk = self
            .load_task(task, feed)
            .transpose()
            .expect("tasks of a stream do not share bytes");
        Some(chunk.map(|chunk| task.loaded(chunk)))
    }

    /// The bytes of a task; `None` if they belong to another.
    fn load_task(&self, task: &LoadTask<'c>, feed: &dyn Feed<'c>) -> Result<Option<Chunk<'c>>> {
        let LoadTask {
            tensor,
            layout,
            origin,
            ..
        } = task;
        match *origin {
            // reported before the reads, in the order in which the loader's own reads are recorded
            ByteOrigin::Transformed => tensor.reads(&mut |bytes, _| feed.on_direct_read(bytes)),
            ByteOrigin::Read(_) => tensor
                .check_bytes()
                .into_iter()
                .for_each(|bytes| feed.on_direct_read(bytes)),
            _ => {}
        }
        let mut progress = self.progress.task(layout.nbytes());
        let chunk = match *origin {
            ByteOrigin::SameAs(_) => None,
            ByteOrigin::Read(read) => {
                let chunk = get(feed, read, 0, &mut progress)?;
                if tensor.has_integrity_check() {
                    // a chunk that is copied below is read in any case, so its checksum costs no further access
                    let borrowed = self.options.borrow_mapped && chunk.is_borrowed();
                    tensor.verify(&chunk, borrowed, &mut |bytes| progress.worked(bytes))?;
                }
                let chunk = self.private_part(task, chunk);
                let is_misaligned = !chunk.as_ptr().addr().is_multiple_of(self.options.align);
                Some(match chunk {
                    // the loader borrowed because it could, but the caller did not allow it: a loaded tensor must
                    // outlive a change of the file, or be writable
                    chunk
                        if !chunk.is_empty()
                            && (is_misaligned || chunk.is_borrowed() && !self.may_borrow()) =>
                    {
                        let mut copy = self.buffer(chunk.len() as u64, &mut progress)?;
                        progress.copy(0, &chunk, &mut copy)?;
                        Chunk::Pooled(copy.freeze())
                    }
                    chunk => chunk,
                })
            }
            ByteOrigin::Runs { first, per_read } => {
                let mut out = self.buffer(layout.nbytes(), &mut progress)?;
                self.read_runs(layout, first, per_read, feed, &mut out, &mut progress)?;
                Some(Chunk::Pooled(out.freeze()))
            }
            ByteOrigin::Transformed => {
                let mut out = self.buffer(layout.nbytes(), &mut progress)?;
                read_transformed(tensor, layout, &mut out, &mut progress)?;
                Some(Chunk::Pooled(out.freeze()))
            }
        };
        progress.finish().map(|()| chunk)
    }

    /// Whether tensors may borrow from the map that all readers share.
    fn may_borrow(&self) -> bool {
        self.options.borrow_mapped && self.private_maps.is_empty()
    }

    /// Replaces borrowed bytes by bytes of a private map, if there is one and no other tensor has some of them.
    fn private_part(&self, task: &LoadTask<'c>, chunk: Chunk<'c>) -> Chunk<'c> {
        let file = task.tensor.info().bytes.file;
        let Some(map) = self.private_maps.get(file as usize) else {
            return chunk;
        };
        if !chunk.is_borrowed() {
            return chunk;
        }
        let map = map.get_or_init(|| {
            let source = task.tensor.checkpoint().source(file);
            source.map_private().map(PoisonMutex::new)
        });
        let Some(map) = map else { return chunk };
        let start = task.tensor.info().bytes.start + task.layout.first().start;
        // its critical section adds a range to a list, which is consistent after a panic
        let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
        let part = usize::try_from(start)
            .ok()
            .and_then(|start| map.part(start..start.checked_add(chunk.len())?));
        part.map_or(chunk, |part| Chunk::Pooled(part.freeze()))
    }

    /// Copies the runs of a slice into one buffer, from the reads that cover them.
    fn read_runs(
        &self,
        layout: &SliceLayout,
        first: usize,
        per_read: u64,
        feed: &dyn Feed<'c>,
        mut out: &mut [u8],
        progress: &mut TaskProgress<'_, '_>,
    ) -> Result<()> {
        let mut before = 0;
        for (read, run) in (first..).zip((0..layout.runs.count()).step_by(to_usize(per_read))) {
            let covering = get(feed, read, before, progress)?;
            let runs = run..run + per_read;
            before += gather(layout, runs, &covering, before, &mut out, progress)?;
        }
        Ok(())
    }

    fn buffer(&self, nbytes: u64, progress: &mut TaskProgress<'_, '_>) -> Result<Buffer> {
        get_buffer(self.pool, nbytes, &mut || progress.flow())
    }

    /// The tensors of a load that has succeeded, in task order.
    pub(super) fn into_tensors(self) -> Vec<LoadedTensor<'c>> {
        let mut tensors: Vec<LoadedTensor<'c>> = Vec::with_capacity(self.tasks.len());
        for (task, loaded) in self.tasks.iter().zip(self.loaded) {
            let chunk = match task.origin {
                // an earlier task
                ByteOrigin::SameAs(first) => tensors[first].chunk().clone(),
                // moved: a clone would make the bytes shared, which cannot be written to
                _ => loaded
                    .into_inner()
                    .expect("every task has succeeded, or the run has failed"),
            };
            tensors.push(task.loaded(chunk));
        }
        tensors
    }
}

/// Gets a read, in front of which `before` bytes of the task are complete.
pub(super) fn get<'c>(
    feed: &dyn Feed<'c>,
    read: usize,
    before: u64,
    progress: &mut TaskProgress<'_, '_>,
) -> Result<Chunk<'c>> {
    feed.get_cancellable(read, &mut |bytes| {
        progress.advance_to(before.saturating_add(bytes));
        progress.flow()
    })
}
