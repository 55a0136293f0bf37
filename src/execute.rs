//! The one loop: fetch, decode, keep; in parallel, with progress, and stopped when asked.
//!
//! Workers take tiles in file order from one queue. Each has a buffer that holds one tile's output, so
//! that it stays in the second-level cache, and hands it to the sink; a sink that lends memory has the
//! elements made right there, past the caches if there are many. Memory is therefore a tile per thread, and what a
//! weight's tiles share.

mod failure;
mod fetch;
mod pace;
mod progress;
mod queue;
mod route;
mod there;
mod threads;

use std::ops::ControlFlow;
use std::sync::Mutex;

use crate::Dtype;
use crate::checkpoint::Checkpoint;
use crate::decode::cast;
use crate::error::{Error, Result};
use crate::load::{GAP, Loader, Reading};
use crate::plan::{Parts, Plan, TensorSpec, Work, room};
use crate::sink::Sink;

use fetch::{Buffers, Slots};
use queue::{Item, Lent, Piece, Queue};
use route::{Reads, Route};
use zeropool::BufferPool;

pub(crate) use failure::Failure;
pub(crate) use pace::{Course, Pace, STEP, unless_stopped};
pub use progress::Progress;
pub(crate) use progress::Watch;
pub(crate) use threads::{threads, threads_for};

/// Carries out a plan with this many threads (0: one per core).
///
/// Without a `loader`, workers lend what they need where it is mapped, and read it where not, tile by tile. A loader
/// brings the same bytes ahead of them.
///
/// `watch` hears of progress now and then, and of the end; it may stop the run.
///
/// # Errors
/// I/O, bytes that contradict each other, a sink that cannot keep what it gets, and
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if `watch` says so. The sink's [`end`](Sink::end) is then not
/// called.
pub fn execute(
    checkpoint: &Checkpoint,
    plan: &Plan,
    loader: Option<&dyn Loader>,
    sink: &mut dyn Sink,
    threads: usize,
    watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<()> {
    let outputs: Vec<TensorSpec> = plan.jobs.iter().map(|job| job.output.clone()).collect();
    sink.begin(&outputs)?;
    let total = plan.nbytes();
    let course = Course::new(Watch::new(total, watch));
    run(checkpoint, plan, loader, sink, threads, &course)?;
    sink.end()?;
    course.finish();
    Ok(())
}

fn run(
    checkpoint: &Checkpoint,
    plan: &Plan,
    loader: Option<&dyn Loader>,
    sink: &mut dyn Sink,
    threads: usize,
    course: &Course<'_>,
) -> Result<()> {
    let threads = threads_for(threads, plan.nbytes());
    if sink.lend().is_some() {
        let crew = Crew::new(
            checkpoint,
            plan,
            Queue::new(plan, sink.lend()),
            course,
            None,
        );
        return crew.run(loader, threads);
    }
    let crew = Crew::new(
        checkpoint,
        plan,
        Queue::new(plan, None),
        course,
        Some(&*sink),
    );
    crew.run(loader, threads)
}

/// Bytes that a loader may bring before they are decoded.
const AHEAD: u64 = 64 << 20;

/// What the workers share.
struct Crew<'r, 'w> {
    checkpoint: &'r Checkpoint,
    plan: &'r Plan,
    queue: Mutex<Queue<'r>>,
    slots: Slots<'r>,
    sink: Option<&'r dyn Sink>,
    course: &'r Course<'w>,
}

impl<'r, 'w> Crew<'r, 'w> {
    fn new(
        checkpoint: &'r Checkpoint,
        plan: &'r Plan,
        queue: Queue<'r>,
        course: &'r Course<'w>,
        sink: Option<&'r dyn Sink>,
    ) -> Self {
        Self {
            checkpoint,
            plan,
            slots: Slots::new(plan),
            queue: Mutex::new(queue),
            sink,
            course,
        }
    }

    fn run(&self, loader: Option<&dyn Loader>, threads: usize) -> Result<()> {
        let Some(loader) = loader else {
            return self.work(threads, None);
        };
        let reading = Reading {
            checkpoint: self.checkpoint,
            pool: BufferPool::new(),
            ahead: AHEAD,
            gap: GAP,
        };
        let mut start = 0;
        while start < self.plan.jobs.len() {
            let reads = Reads::of(self.plan, self.checkpoint.catalog(), start);
            start = reads.jobs().end;
            self.queue
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .until(start);
            let flow = || self.course.flow();
            reading.bring(loader, &reads.list, &mut |feed| {
                self.work(
                    threads,
                    Some(Route {
                        reads: &reads,
                        feed,
                        flow: &flow,
                    }),
                )
            })?;
        }
        Ok(())
    }

    fn work(&self, threads: usize, route: Option<Route<'_, 'r>>) -> Result<()> {
        if threads == 1 {
            self.worker(route);
        } else {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.map_err(|e| Error::from(std::io::Error::other(e)))?;
            pool.in_place_scope(|scope| {
                (0..threads).for_each(|_| scope.spawn(|_| self.worker(route)))
            });
        }
        self.course.failure.outcome()
    }

    /// Takes pieces until there are none.
    fn worker(&self, route: Option<Route<'_, 'r>>) {
        let mut buffers = Buffers::default();
        while !self.course.failure.is_seen() {
            let Some(item) = self.queue.lock().ok().and_then(|mut queue| queue.next()) else {
                break;
            };
            if let Err(error) = self.item(item, &mut buffers, route) {
                self.course.failure.tell(error);
            }
        }
    }

    fn item(
        &self,
        item: Item<'r>,
        buffers: &mut Buffers,
        route: Option<Route<'_, 'r>>,
    ) -> Result<()> {
        let job = &self.plan.jobs[item.job];
        let out = item.out;
        match (&job.work, item.piece) {
            (
                Work::Tiles { decoder, .. },
                Piece::Tile {
                    tile,
                    number,
                    start,
                    nbytes,
                },
            ) => {
                let ready = self
                    .slots
                    .get(self.checkpoint, job, item.job, route, self.course)?;
                let Buffers { output, input } = buffers;
                let brought = ready.brought(route, &tile, number)?;
                let inputs = ready.inputs(self.checkpoint, &tile, &brought, input)?;
                let about = |e: Error| {
                    e.about(&format!(
                        "weight {}",
                        crate::catalog::quote(&job.output.name)
                    ))
                };
                let shared = ready.shared();
                let parts = Parts {
                    shared: &shared,
                    inputs: &inputs,
                    rows: tile.rows,
                    dtype: job.output.dtype,
                };
                match out {
                    None => {
                        let made = room(output, nbytes)?;
                        decoder.decode(parts, made).map_err(about)?;
                        self.put(item.job, start, made)?;
                    }
                    Some(Lent { bytes, past: false }) => {
                        decoder.decode(parts, bytes).map_err(about)?
                    }
                    Some(Lent { bytes, past: true }) => {
                        decoder.decode_past(parts, output, bytes).map_err(about)?
                    }
                }
                self.slots.done(item.job);
                self.course.add(nbytes as u64)
            }
            (Work::Stream { from }, _) => {
                let info = &self.checkpoint.catalog().tensors()[job.parts[0].tensor];
                route
                    .iter()
                    .for_each(|route| route.whole_beside(self.checkpoint.catalog(), info));
                self.stream(item.job, *from, out.map(|lent| lent.bytes), buffers)
            }
            (Work::Tiles { .. }, Piece::Whole) => unreachable!("tiles come as tiles"),
        }
    }

    fn stream(
        &self,
        number: usize,
        from: Dtype,
        out: Option<&mut [u8]>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let job = &self.plan.jobs[number];
        let tensor = self.checkpoint.tensor_at(job.parts[0].tensor);
        let to = job.output.dtype;
        let mut out = out;
        let mut start = 0u64;
        tensor.chunks(|piece| {
            let nbytes = if from == to {
                piece.len()
            } else {
                piece.len() / from.width() * to.width()
            };
            match &mut out {
                Some(out) => {
                    let now = out.split_off_mut(..nbytes).expect("as long as the output");
                    cast::cast(from, piece, to, now)?;
                }
                None if from == to => self.put(number, start, piece)?,
                None => {
                    let made = room(&mut buffers.output, nbytes)?;
                    cast::cast(from, piece, to, made)?;
                    self.put(number, start, made)?;
                }
            }
            start += nbytes as u64;
            self.course.add(nbytes as u64)
        })
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        self.sink
            .expect("a sink that does not lend")
            .put(output, start, bytes)
    }
}
