//! Execution of a plan: fetch stored bytes, decode them, pass the elements to a sink; in parallel, with progress and
//! cancellation.
//!
//! Workers take tiles in file order from one queue. A worker decodes a tile into its own buffer, which stays in the
//! second-level cache, and passes it to the sink. If the sink provides memory for its outputs, tiles are decoded right into it,
//! with non-temporal stores where the outputs are large. Memory is therefore one tile per thread, and what the tiles of a
//! weight share.

mod inputs;
#[cfg(all(test, shuttle))]
mod interleavings;
mod job_rows;
mod order;
mod queue;
mod routing;

use std::sync::{Arc, PoisonError};

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{on_threads, thread_count_for, work_off};
use crate::engine::load::{LoadContext, Loader, MAX_GAP, RemoteLoader};
use crate::engine::sink::Sink;
use crate::plan::decode::cast;
use crate::plan::{DecodeInput, JobWork, Plan, TensorSpec, aligned_scratch};
use crate::read::checkpoint::Checkpoint;
use crate::read::run_options::{RunOptions, run_options};
use crate::read::slice::{SelectedBytes, TensorSlice};
use crate::read::source::any_concurrent;

use inputs::{Buffers, JobCache};
pub(crate) use job_rows::{JobRows, RowBuffers};
use queue::{OutputMemory, WorkItem, WorkQueue, WorkUnit};
use routing::{ReadList, Routing};
use zeropool::BufferPool;

/// Executes a plan: makes every output, and passes it to a sink.
///
/// ```
/// use anamnesis::execute::Executor;
/// use anamnesis::sink::NullSink;
/// use anamnesis::{Checkpoint, remember};
///
/// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
/// let plan = remember(&checkpoint).plan()?;
/// Executor::new(&checkpoint, &plan)
///     .threads(2)
///     .progress(|progress| println!("{} of {} bytes", progress.done, progress.total))
///     .run(&mut NullSink)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone)]
pub struct Executor<'c> {
    checkpoint: &'c Checkpoint,
    plan: &'c Plan,
    loader: Option<Arc<dyn Loader>>,
    options: RunOptions<'c>,
}

run_options!(Executor {
    /// They decode; a loader has its own.
    threads,
    /// In bytes of outputs. Also at least every 100 ms while workers wait for a loader.
    progress,
    cancel,
});

impl<'c> Executor<'c> {
    /// An executor with one thread per core and without a loader.
    pub fn new(checkpoint: &'c Checkpoint, plan: &'c Plan) -> Self {
        Self {
            checkpoint,
            plan,
            loader: None,
            options: RunOptions::default(),
        }
    }

    /// Reads stored bytes with this loader, ahead of the workers. Without a loader, workers borrow them from the mapped
    /// file, or read them tile by tile; that is faster for files in the page cache. Files at URLs are read by a
    /// [`RemoteLoader`] then. The outputs are the same.
    #[must_use]
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// Makes every job of the plan. Refused weights ([`Plan::refused`]) are not looked at: see [`Plan::check`].
    ///
    /// # Errors
    /// I/O errors; stored bytes that contradict each other; a sink that cannot keep the outputs; cancellation.
    /// [`Sink::fail`] is called after an error, and [`Sink::end`] is not.
    pub fn run(&self, sink: &mut dyn Sink) -> Result<()> {
        self.run_with(&self.options.control, sink)
    }

    /// Like [`run`](Self::run), with the callback and token of another builder, whose lifetime is not `'c`.
    pub(crate) fn run_with(&self, control: &RunControl<'_>, sink: &mut dyn Sink) -> Result<()> {
        let outputs: Vec<TensorSpec> = self
            .plan
            .jobs
            .iter()
            .map(|job| job.output.clone())
            .collect();
        let progress = RunProgress::new(self.plan.nbytes(), control);
        let run = |sink: &mut dyn Sink| {
            // before any byte is read: a sink that cannot store the outputs should fail first
            sink.begin(&outputs)?;
            self.run_all(sink, &progress)?;
            sink.end_while(&|| progress.flow())
        };
        if let Err(error) = run(sink) {
            return Err(sink.fail(error));
        }
        progress.finish();
        Ok(())
    }

    fn run_jobs(&self, sink: &mut dyn Sink, progress: &RunProgress<'_>) -> Result<()> {
        let Self {
            checkpoint, plan, ..
        } = *self;
        // by the bytes of the outputs, since decoding takes more time than reading
        let threads = thread_count_for(self.options.threads, plan.nbytes());
        let workers = |queue, sink| Workers {
            checkpoint,
            plan,
            jobs: JobCache::new(plan),
            queue: PoisonMutex::new(queue),
            sink,
            progress,
        };
        // a round trip for each tile would take longer than its bytes
        let requests = RemoteLoader::new().request_size(REQUEST_SIZE);
        let reading = match &self.loader {
            Some(loader) => Some(ReadingAhead {
                loader: &**loader,
                nbytes: READ_AHEAD,
            }),
            None if any_concurrent(checkpoint.sources()) => Some(ReadingAhead {
                loader: &requests,
                nbytes: REMOTE_READ_AHEAD,
            }),
            None => None,
        };
        // the outputs' memory borrows the sink until the queue is dropped, so that `put` cannot be called with it
        if sink.output_memory().is_some() {
            return workers(WorkQueue::new(plan, sink.output_memory()), None).run(reading, threads);
        }
        workers(WorkQueue::new(plan, None), Some(&*sink)).run(reading, threads)
    }
}

impl std::fmt::Debug for Executor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor")
            .field("loader", &self.loader)
            .field("threads", &self.options.threads)
            .finish_non_exhaustive()
    }
}

/// Bytes that a loader may read before they are decoded.
const READ_AHEAD: u64 = 64 << 20;
/// The same for files at URLs, unless a loader is set: with what uploads buffer, a run from a bucket to a bucket then takes less than 128 MiB.
const REMOTE_READ_AHEAD: u64 = 24 << 20;
/// Bytes of a request, unless a loader is set: 12 of them fit into what may be read ahead. They take as long as a round trip of
/// 40 ms, at 50 MB/s.
const REQUEST_SIZE: usize = 2 << 20;

/// A loader, and the bytes that it may read before they are decoded.
#[derive(Clone, Copy)]
struct ReadingAhead<'l> {
    loader: &'l dyn Loader,
    nbytes: u64,
}

/// The state that the workers of a run share.
struct Workers<'r, 'c> {
    checkpoint: &'r Checkpoint,
    plan: &'r Plan,
    queue: PoisonMutex<WorkQueue<'r>>,
    jobs: JobCache<'r>,
    /// `None` if the sink provides memory, which the queue then hands out.
    sink: Option<&'r dyn Sink>,
    progress: &'r RunProgress<'c>,
}

impl<'r> Workers<'r, '_> {
    /// Makes all jobs; with a loader, as many at a time as fit into a list of reads.
    fn run(&self, reading: Option<ReadingAhead<'_>>, threads: usize) -> Result<()> {
        let Some(ReadingAhead { loader, nbytes }) = reading else {
            return self.run_threads(threads, None);
        };
        let context = LoadContext {
            checkpoint: self.checkpoint,
            pool: BufferPool::new(),
            read_ahead: nbytes,
            max_gap: MAX_GAP,
            into_memory: false,
        };
        let mut start = 0;
        while start < self.plan.jobs.len() {
            // a list of bounded length at a time: the reads of 400 GB in tiles of 512 KiB would be a million entries
            let reads = ReadList::new(self.plan, self.checkpoint.catalog(), start);
            start = reads.jobs().end;
            // workers end there, so that no tile waits for bytes which are not in this list
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .set_end(start);
            let flow = || self.progress.flow();
            context.run(loader, &reads.list, &mut |feed| {
                let routing = Routing {
                    reads: &reads,
                    feed,
                    flow: &flow,
                };
                self.run_threads(threads, Some(routing))
            })?;
        }
        Ok(())
    }

    fn run_threads(&self, threads: usize, routing: Option<Routing<'_, 'r>>) -> Result<()> {
        on_threads("decode", threads, &|| self.run_worker(routing));
        self.progress.failure.outcome()
    }

    /// Takes items from the queue until it is empty, or a worker has failed.
    fn run_worker(&self, routing: Option<Routing<'_, 'r>>) {
        let mut buffers = Buffers::default();
        // a poisoned queue means that a worker has panicked: the others end, and the panic continues on the caller's thread
        let next = || self.queue.lock().ok().and_then(|mut queue| queue.next());
        work_off(&self.progress.failure, next, |item| {
            self.run_item(item, &mut buffers, routing)
        });
    }

    fn run_item(
        &self,
        item: WorkItem<'r>,
        buffers: &mut Buffers,
        routing: Option<Routing<'_, 'r>>,
    ) -> Result<()> {
        let job = &self.plan.jobs[item.job];
        let out = item.out;
        match (&job.work, item.unit) {
            (
                JobWork::Tiles { decoder, .. },
                WorkUnit::Tile {
                    tile,
                    number,
                    start,
                    nbytes,
                },
            ) => {
                let job_inputs =
                    self.jobs
                        .get(self.checkpoint, job, item.job, routing, self.progress)?;
                let Buffers { output, input } = buffers;
                let prefetched = job_inputs.prefetched(routing, &tile, number)?;
                let inputs = job_inputs.tile(self.checkpoint, &tile, &prefetched, input)?;
                let about = |e: Error| {
                    e.context(&format!(
                        "weight {}",
                        crate::read::catalog::quote(&job.output.name)
                    ))
                };
                let shared = job_inputs.shared();
                let parts = DecodeInput {
                    shared: &shared,
                    inputs: &inputs,
                    rows: tile.rows,
                    dtype: job.output.dtype,
                };
                match out {
                    None => {
                        let decoded = aligned_scratch(output, nbytes)?;
                        decoder.decode(parts, decoded).map_err(about)?;
                        self.put(item.job, start, decoded)?;
                    }
                    Some(OutputMemory {
                        bytes,
                        non_temporal: false,
                    }) => decoder.decode(parts, bytes).map_err(about)?,
                    Some(OutputMemory {
                        bytes,
                        non_temporal: true,
                    }) => decoder
                        .decode_streaming(parts, output, bytes)
                        .map_err(about)?,
                }
                // after the sink has the bytes: the last tile releases the inputs that this one has borrowed
                self.jobs.tile_done(item.job);
                self.progress.add(nbytes as u64)
            }
            (JobWork::Stream { from, slice }, _) => {
                let info = &self.checkpoint.catalog().tensors()[job.parts[0].tensor];
                routing
                    .iter()
                    .for_each(|routing| routing.report_tensor(self.checkpoint.catalog(), info));
                self.stream(item.job, *from, slice, out.map(|out| out.bytes), buffers)
            }
            (JobWork::Tiles { .. }, WorkUnit::Whole) => unreachable!("the queue cuts tiles"),
        }
    }

    /// Reads a tensor from its first element to its last, and casts it, or a slice of it, chunk by chunk.
    fn stream(
        &self,
        number: usize,
        from: Dtype,
        slice: &TensorSlice,
        mut out: Option<&mut [u8]>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let job = &self.plan.jobs[number];
        let tensor = self.checkpoint.tensor_at(job.parts[0].tensor);
        let (info, to) = (tensor.info(), job.output.dtype);
        let layout = slice.layout("tensor", &info.name, &info.shape, &info.encoding)?;
        let mut selected = SelectedBytes::new(&layout);
        let (mut start, mut gathered) = (0u64, Vec::new());
        tensor.chunks(|chunk| {
            let chunk = if layout.is_whole() {
                chunk
            } else {
                // short runs are cast and stored together
                gathered.clear();
                gathered.reserve(chunk.len());
                selected.of(chunk, |run| {
                    gathered.extend_from_slice(run);
                    Ok(())
                })?;
                &gathered
            };
            let nbytes = if from == to {
                chunk.len()
            } else {
                // divided first, since chunks are whole elements
                chunk.len() / from.width() * to.width()
            };
            match &mut out {
                Some(out) => {
                    // a stream writes its output from front to end, so the rest of the slice is what is left to write
                    let out = out.split_off_mut(..nbytes).expect("as long as the output");
                    cast::cast(from, chunk, to, out)?;
                }
                None if chunk.is_empty() => {}
                None if from == to => self.put(number, start, chunk)?,
                None => {
                    let converted = aligned_scratch(&mut buffers.output, nbytes)?;
                    cast::cast(from, chunk, to, converted)?;
                    self.put(number, start, converted)?;
                }
            }
            start += nbytes as u64;
            self.progress.add(nbytes as u64)
        })
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        self.sink
            .expect("the sink provides no memory")
            .put_while(output, start, bytes, &|| self.progress.flow())
    }
}
