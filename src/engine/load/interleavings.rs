//! The read-ahead queue, the tasks of a load, and progress under thousands of thread schedules, explored with shuttle: no
//! schedule deadlocks, misses a wake-up, reads a request twice or not at all, or loses a cancellation.
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib load::models` (`.ci/prove`).

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};

use shuttle::thread;
use zeropool::BufferPool;

use super::caller_memory::IntoPieces;
use super::coalesce::coalesce;
use super::read_ahead::{NextRequest, ReadAhead, RequestLayout};
use super::report::{Backend, ReportBuilder};
use super::slices::CheckpointSlices;
use super::tasks::{LoadRun, LoadTask, MemoryOptions, plan_tasks};
use super::{Feed, LoadContext};
use crate::base::error::{Error, ErrorKind};
use crate::base::limits::{Budget, Limits};
use crate::base::progress::{CancelToken, RunControl, RunProgress};
use crate::base::sync::{AtomicUsize, explore};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;

const MEMORY: MemoryOptions = MemoryOptions {
    borrow_mapped: false,
    align: 1,
};

const TENSORS: usize = 3;
/// The length of a tensor: two requests each.
pub(crate) const TENSOR_BYTES: usize = 5000;

/// A file of [`TENSORS`] tensors, and its bytes.
pub(crate) static FILE: LazyLock<(Checkpoint, Vec<u8>)> = LazyLock::new(|| {
    let entry = |i: usize| {
        let (start, end) = (i * TENSOR_BYTES, (i + 1) * TENSOR_BYTES);
        format!(
            r#""t{i}":{{"dtype":"U8","shape":[{TENSOR_BYTES}],"data_offsets":[{start},{end}]}}"#
        )
    };
    let entries: Vec<String> = (0..TENSORS).map(entry).collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..TENSORS * TENSOR_BYTES).map(|i| (i % 251).to_le_bytes()[0]));
    (Checkpoint::from_bytes(bytes.clone()).unwrap(), bytes)
});

pub(crate) fn file_bytes(bytes: ByteRange) -> &'static [u8] {
    let start = usize::try_from(bytes.start).unwrap();
    &FILE.1[start..][..usize::try_from(bytes.len).unwrap()]
}

pub(crate) fn reads() -> Vec<ByteRange> {
    let tensors = FILE.0.catalog().tensors();
    tensors.iter().map(|tensor| tensor.bytes).collect()
}

fn context(pool: &BufferPool) -> LoadContext<'static> {
    LoadContext {
        checkpoint: &FILE.0,
        pool: pool.clone(),
        read_ahead: 1,
        max_gap: 0,
        into_memory: false,
    }
}

/// A queue over the file that reads at most one extent ahead, with an extent for each read.
pub(crate) struct Model<'c> {
    pool: BufferPool,
    queue: ReadAhead<'c>,
    /// Offsets of the requests that readers received.
    seen: Mutex<Vec<u64>>,
}

impl<'c> Model<'c> {
    pub(crate) fn feed(&self) -> &dyn Feed<'c> {
        &self.queue
    }

    pub(crate) fn new(reads: &[ByteRange]) -> Self {
        let pool = BufferPool::builder().budget(1 << 20).build().unwrap();
        let context = context(&pool);
        let layout = RequestLayout {
            size: 4096,
            align: 64,
        };
        let report = Arc::new(ReportBuilder::new(Backend::Threads, None));
        Self {
            pool,
            queue: ReadAhead::new(&context, coalesce(reads, 0, 1), layout, report),
            seen: Mutex::default(),
        }
    }

    /// Reads until the queue is finished; the read with the number `failing` of this reader fails.
    fn read(&self, failing: Option<usize>) {
        for number in 0.. {
            let (request, mut part) = match self.queue.next(true) {
                NextRequest::Request(request, part) => (request, part),
                NextRequest::Full => unreachable!("the reader waits"),
                NextRequest::Finished => return,
            };
            self.seen.lock().unwrap().push(request.start);
            if failing == Some(number) {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                self.queue.fail(request.file, request.start, error);
                continue;
            }
            let start = usize::try_from(request.start).unwrap();
            part[..request.needed].copy_from_slice(&FILE.1[start..][..request.needed]);
            self.queue.complete(request, part);
        }
    }

    /// Gets these reads in this order, and compares the bytes.
    fn consume(&self, reads: &[ByteRange], numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let chunk = self.queue.get(number).unwrap();
            assert_eq!(chunk[..], *file_bytes(reads[number]));
        }
    }

    /// Runs a reader, a consumer, and a third thread of either kind, as a loader does. The queue stops after the last
    /// consumer.
    pub(crate) fn run(
        &self,
        failing: Option<usize>,
        consumer: impl FnOnce(),
        other_consumer: Option<&(dyn Fn() + Sync)>,
    ) {
        let running = AtomicUsize::new(2);
        thread::scope(|scope| {
            let stop = Arc::new(self.queue.stop_on_drop());
            scope.spawn(|| {
                self.read(failing);
                running.fetch_sub(1, Ordering::SeqCst);
            });
            let other_stop = other_consumer.map(|_| Arc::clone(&stop));
            let running = &running;
            scope.spawn(move || {
                match other_consumer {
                    Some(other) => other(),
                    None => self.read(failing),
                }
                drop(other_stop);
                running.fetch_sub(1, Ordering::SeqCst);
            });
            consumer();
            drop(stop);
            // not by joining: shuttle 0.8 wakes a joining thread that was in a mutex's queue before
            while running.load(Ordering::SeqCst) > 0 {
                thread::yield_now();
            }
        });
    }

    /// After the threads have ended: each request was read at most once, and no buffer is left.
    pub(crate) fn finish(self) -> usize {
        let seen = self.seen.into_inner().unwrap();
        let distinct: HashSet<u64> = seen.iter().copied().collect();
        assert_eq!(distinct.len(), seen.len(), "a request was read twice");
        drop(self.queue);
        assert_eq!(self.pool.stats().in_use, 0);
        seen.len()
    }
}

#[test]
fn every_request_is_read_once() {
    explore(1000, || {
        let reads = reads();
        let model = Model::new(&reads);
        model.run(None, || model.consume(&reads, 0..TENSORS), None);
        assert_eq!(model.finish(), 2 * TENSORS);
    });
}

/// Consumers that get the last reads first, on two threads: the limit yields to what they wait for.
#[test]
fn no_order_of_consumption_deadlocks() {
    explore(1000, || {
        let reads = reads();
        let model = Model::new(&reads);
        model.run(
            None,
            || model.consume(&reads, [1, 0]),
            Some(&|| model.consume(&reads, [2])),
        );
        assert_eq!(model.finish(), 2 * TENSORS);
    });
}

#[test]
fn a_failed_read_reaches_every_consumer() {
    explore(1000, || {
        let reads = reads();
        let model = Model::new(&reads);
        model.run(
            Some(0),
            || assert!(model.queue.get(1).is_err()),
            Some(&|| assert!(model.queue.get(2).is_err())),
        );
        model.finish();
    });
}

#[test]
fn readers_end_with_a_consumer_that_stops_early() {
    explore(1000, || {
        let reads = reads();
        let model = Model::new(&reads);
        model.run(None, || model.consume(&reads, [0]), None);
        assert!(model.finish() >= 2);
    });
}

/// The reads and tasks of all tensors of the file. `share`: as of [`plan_tasks`].
fn planned(share: bool) -> (Vec<ByteRange>, Vec<LoadTask<'static>>) {
    let (catalog, tensors) = (FILE.0.catalog(), FILE.0.tensors());
    let budget = Budget::new(Limits::default());
    plan_tasks(catalog, tensors, &CheckpointSlices::Whole, share, &budget).unwrap()
}

#[test]
fn each_task_of_a_load_is_done_once() {
    explore(1000, || {
        let (reads, tasks) = planned(true);
        let model = Model::new(&reads);
        let load = LoadRun::new(&model.pool, MEMORY, &tasks, &RunControl::default());
        model.run(
            None,
            || load.run_worker(&model.queue),
            Some(&|| load.run_worker(&model.queue)),
        );
        load.progress.failure.outcome().unwrap();
        assert!(load.progress.is_complete());
        let loaded = load.into_tensors();
        assert_eq!(loaded.len(), TENSORS);
        for (tensor, read) in loaded.iter().zip(&reads) {
            assert_eq!(tensor.bytes(), file_bytes(*read));
        }
        drop(loaded);
        assert_eq!(model.finish(), 2 * TENSORS);
    });
}

/// Two workers fill memory of the caller.
#[test]
fn each_piece_is_filled_once() {
    explore(1000, || {
        let (reads, tasks) = planned(false);
        let model = Model::new(&reads);
        let mut memory = vec![vec![0; TENSOR_BYTES]; TENSORS];
        let outs = memory.iter_mut().map(|out| &mut out[..]);
        let pieces = IntoPieces::new(tasks.iter().zip(outs), &context(&model.pool));
        let (load, pieces) = pieces.into_run(&RunControl::default());
        assert_eq!(pieces, reads, "one piece for each tensor");
        model.run(
            None,
            || load.run_worker(&model.queue),
            Some(&|| load.run_worker(&model.queue)),
        );
        load.progress.failure.outcome().unwrap();
        assert!(load.progress.is_complete());
        drop(load);
        for (out, read) in memory.iter().zip(&reads) {
            assert_eq!(out[..], *file_bytes(*read));
        }
        assert_eq!(model.finish(), 2 * TENSORS);
    });
}

#[test]
fn a_load_with_a_failed_read_ends_in_its_error() {
    explore(1000, || {
        let (reads, tasks) = planned(true);
        let model = Model::new(&reads);
        let load = LoadRun::new(&model.pool, MEMORY, &tasks, &RunControl::default());
        model.run(
            Some(1),
            || load.run_worker(&model.queue),
            Some(&|| load.run_worker(&model.queue)),
        );
        let error = load.progress.failure.outcome().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error}");
        drop(load);
        model.finish();
    });
}

#[test]
fn a_cancelled_run_stops_every_worker() {
    explore(1000, || {
        let token = CancelToken::new();
        let reported = Mutex::new(Vec::new());
        let mut control = RunControl::default();
        control.set_cancel(&token);
        control.set_progress(|progress| reported.lock().unwrap().push(progress.done));
        let run = RunProgress::new(6 << 22, &control);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let added = (0..3)
                        .map(|_| run.add(1 << 22))
                        .collect::<Result<Vec<_>, _>>();
                    assert!(added.is_ok() || token.is_cancelled());
                });
            }
            let canceller = scope.spawn(|| token.cancel());
            canceller.join().unwrap();
            let error = run.add(0).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Cancelled));
            assert!(run.flow().is_break());
        });
        let reported = reported.lock().unwrap();
        assert!(reported.is_sorted(), "{reported:?}");
    });
}

#[test]
fn the_first_error_of_a_run_is_kept_and_stops_it() {
    explore(1000, || {
        let run = RunProgress::new(1, &RunControl::default());
        thread::scope(|scope| {
            for name in ["a", "b"] {
                let run = &run;
                scope.spawn(move || {
                    run.failure.set(Error::invalid_argument(name));
                    assert!(run.flow().is_break());
                });
            }
        });
        assert!(run.failure.outcome().is_err());
        assert!(run.failure.outcome().is_ok(), "two errors were kept");
    });
}
