//! The executor's workers, their queue and their cache of inputs under hundreds of thread schedules, explored with shuttle:
//! each tile is made once, the inputs of a job are read once and released, no worker waits for ever for another one or for
//! a loader, and a failure or a cancellation ends all of them.
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib execute::models` (`.ci/prove`).
//!
//! All but the one of the sink's memory, whose lock the types enforce, were seen to fail: with inputs that are made outside of
//! their lock, and with workers that ignore the failure of another one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;

use super::inputs::JobCache;
use super::queue::WorkQueue;
use super::routing::{ReadList, Routing};
use super::{TensorSpec, Workers};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::progress::{CancelToken, RunControl, RunProgress};
use crate::base::sync::{AtomicUsize, PoisonMutex, explore};
use crate::engine::load::interleavings::{FILE, Model, TENSOR_BYTES, file_bytes};
use crate::engine::sink::Sink;
use crate::plan::{
    DecodeInput, Decoder, Grid, Job, JobWork, PartRange, PartRanges, Plan, StoredPart,
};
use crate::read::catalog::Shape;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::FnSource;

/// Rows of an output, each a tile.
const ROWS: usize = 4;
const ROW_BYTES: usize = TENSOR_BYTES / ROWS;

/// Runs another thread, if the schedule says so.
fn switch() {
    thread::sleep(Duration::ZERO);
}

/// Rows of the second part, XOR a byte at this offset of the first, which all tiles share.
#[derive(Debug)]
struct MaskedRows {
    mask_at: usize,
    failing: Option<u64>,
}

impl Decoder for MaskedRows {
    fn grid(&self) -> Grid {
        Grid::new(ROWS as u64, ROW_BYTES as u64)
    }

    fn shared(&self) -> PartRanges {
        let at = self.mask_at as u64;
        std::iter::once(PartRange::run(0, at..at + 1)).collect()
    }

    fn inputs(&self, rows: std::ops::Range<u64>) -> PartRanges {
        let bytes = rows.start * ROW_BYTES as u64..rows.end * ROW_BYTES as u64;
        std::iter::once(PartRange::run(1, bytes)).collect()
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        switch();
        if Some(parts.rows.start) == self.failing {
            return Err(Error::malformed("this row"));
        }
        let mask = parts.shared[0].run(0)[0];
        for (out, stored) in out.iter_mut().zip(parts.inputs[0].run(0)) {
            *out = stored ^ mask;
        }
        Ok(())
    }
}

/// Bytes from one mask to the next: in another request of a loader.
const MASK_STRIDE: usize = 1000;

/// The plan of an output for each tensor but the first, whose bytes are the masks.
fn plan(failing: Option<u64>) -> Plan {
    let job = |tensor: usize| Job {
        output: TensorSpec::new(
            format!("t{tensor}"),
            Shape::from_slice(&[TENSOR_BYTES as u64]),
            Dtype::U8,
        ),
        scheme: "masked",
        parts: [0, tensor]
            .map(|tensor| StoredPart {
                role: "codes",
                tensor,
            })
            .to_vec(),
        work: JobWork::Tiles {
            decoder: Arc::new(MaskedRows {
                mask_at: tensor * MASK_STRIDE,
                failing,
            }),
            rows: 1,
        },
    };
    Plan {
        jobs: [1, 2].map(job).to_vec(),
        refused: Vec::new(),
        unexplained: Vec::new(),
        quantised: true,
        notes: Vec::new(),
        output_notes: Vec::new(),
    }
}

fn expected_outputs() -> Vec<Vec<u8>> {
    let tensors = FILE.0.catalog().tensors();
    let masks = file_bytes(tensors[0].bytes);
    let output = |tensor: usize| {
        let stored = file_bytes(tensors[tensor].bytes).iter();
        stored
            .map(|byte| byte ^ masks[tensor * MASK_STRIDE])
            .collect()
    };
    [1, 2].map(output).to_vec()
}

/// Keeps outputs, each byte of which is to be stored once.
struct StoredOnce(Mutex<Vec<Vec<Option<u8>>>>);

impl StoredOnce {
    fn new() -> Self {
        Self(Mutex::new(vec![vec![None; TENSOR_BYTES]; 2]))
    }

    fn stored_bytes(&self) -> usize {
        self.0.lock().unwrap().iter().flatten().flatten().count()
    }

    fn finish(self) -> Vec<Vec<u8>> {
        let outputs = self.0.into_inner().unwrap().into_iter();
        outputs
            .map(|bytes| {
                bytes
                    .into_iter()
                    .map(|byte| byte.expect("stored"))
                    .collect()
            })
            .collect()
    }
}

impl Sink for StoredOnce {
    fn begin(&mut self, _: &[TensorSpec]) -> Result<()> {
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        switch();
        let start = usize::try_from(start).unwrap();
        let mut outputs = self.0.lock().unwrap();
        for (stored, byte) in outputs[output][start..].iter_mut().zip(bytes) {
            assert!(stored.replace(*byte).is_none(), "stored twice");
        }
        Ok(())
    }
}

fn workers<'r, 'c>(
    checkpoint: &'r Checkpoint,
    plan: &'r Plan,
    sink: &'r dyn Sink,
    progress: &'r RunProgress<'c>,
) -> Workers<'r, 'c> {
    Workers {
        checkpoint,
        plan,
        queue: PoisonMutex::new(WorkQueue::new(plan, None)),
        jobs: JobCache::new(plan),
        sink: Some(sink),
        progress,
    }
}

/// Two workers without a loader.
fn run(workers: &Workers<'_, '_>) -> Result<()> {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| workers.run_worker(None));
        }
    });
    workers.progress.failure.outcome()
}

#[test]
fn each_tile_is_made_once_of_inputs_that_are_read_once() {
    explore(400, || {
        let reads = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reads);
        let source = FnSource::new(FILE.1.len() as u64, move |start, out: &mut [u8]| {
            switch();
            log.lock().unwrap().push((start, out.len()));
            let start = usize::try_from(start).unwrap();
            out.copy_from_slice(&FILE.1[start..][..out.len()]);
            Ok(())
        });
        let (checkpoint, plan) = (Checkpoint::from_source(source).unwrap(), plan(None));
        reads.lock().unwrap().clear(); // the reads of the header
        let progress = RunProgress::new(plan.nbytes(), &RunControl::default());
        let sink = StoredOnce::new();
        let workers = workers(&checkpoint, &plan, &sink, &progress);
        run(&workers).unwrap();
        assert!(workers.jobs.is_released());
        assert!(progress.is_complete());
        drop(workers);
        assert!(sink.finish() == expected_outputs());
        let mut reads = reads.lock().unwrap();
        reads.sort_unstable();
        let masks = reads.iter().filter(|(_, len)| *len == 1).count();
        assert_eq!((masks, reads.len()), (2, 2 + 2 * ROWS), "{reads:?}");
        reads.dedup();
        assert_eq!(reads.len(), 2 + 2 * ROWS, "a tile was read twice");
    });
}

/// The sink's memory is divided among the tiles under the queue's lock.
#[test]
fn tiles_are_decoded_into_the_memory_of_the_sink() {
    explore(400, || {
        let plan = plan(None);
        let progress = RunProgress::new(plan.nbytes(), &RunControl::default());
        let mut outputs = vec![vec![0; TENSOR_BYTES]; 2];
        let memory = outputs.iter_mut().map(|output| &mut output[..]).collect();
        run(&Workers {
            checkpoint: &FILE.0,
            plan: &plan,
            queue: PoisonMutex::new(WorkQueue::new(&plan, Some(memory))),
            jobs: JobCache::new(&plan),
            sink: None,
            progress: &progress,
        })
        .unwrap();
        assert!(outputs == expected_outputs());
    });
}

/// The results of two workers that read through a loader.
struct LoaderRun {
    outcome: Result<()>,
    /// Whether the inputs of all jobs were released.
    is_released: bool,
    sink: StoredOnce,
    reads: usize,
}

/// Runs two workers that read through a loader, of which the read with this number fails.
fn run_with_loader(failing: Option<usize>) -> LoaderRun {
    let plan = plan(None);
    let progress = RunProgress::new(plan.nbytes(), &RunControl::default());
    let sink = StoredOnce::new();
    let reads = ReadList::new(&plan, FILE.0.catalog(), 0);
    let model = Model::new(&reads.list);
    let workers = workers(&FILE.0, &plan, &sink, &progress);
    let flow = || progress.flow();
    let routing = Routing {
        reads: &reads,
        feed: model.feed(),
        flow: &flow,
    };
    model.run(
        failing,
        || workers.run_worker(Some(routing)),
        Some(&|| workers.run_worker(Some(routing))),
    );
    let outcome = progress.failure.outcome();
    let is_released = workers.jobs.is_released();
    drop(workers);
    LoaderRun {
        outcome,
        is_released,
        sink,
        reads: model.finish(),
    }
}

/// A worker that makes the inputs of a job waits for the loader with their lock held, and the others wait for that lock.
#[test]
fn workers_and_their_loader_wait_for_each_other_in_no_schedule() {
    explore(150, || {
        let run = run_with_loader(None);
        run.outcome.unwrap();
        assert!(run.is_released);
        assert!(run.sink.finish() == expected_outputs());
        assert_eq!(run.reads, 2 + 2 * ROWS);
    });
}

#[test]
fn a_failed_read_ends_the_workers_of_a_loader() {
    explore(150, || {
        let error = run_with_loader(Some(3)).outcome.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error}");
    });
}

#[test]
fn a_failed_tile_ends_the_other_workers() {
    explore(400, || {
        let plan = plan(Some(1));
        let progress = RunProgress::new(plan.nbytes(), &RunControl::default());
        let sink = StoredOnce::new();
        let workers = workers(&FILE.0, &plan, &sink, &progress);
        let error = run(&workers).unwrap_err();
        assert!(error.to_string().contains("this row"), "{error}");
        let tiles = sink.stored_bytes() / ROW_BYTES;
        // while one worker is at the failing row of the first output, the other one gets to the failing row of the second at
        // most
        assert!(tiles <= ROWS, "{tiles} tiles beside a failure");
    });
}

#[test]
fn a_cancelled_run_ends() {
    explore(400, || {
        let (plan, token) = (plan(None), CancelToken::new());
        let mut control = RunControl::default();
        control.set_cancel(&token);
        let progress = RunProgress::new(plan.nbytes(), &control);
        let sink = StoredOnce::new();
        let workers = workers(&FILE.0, &plan, &sink, &progress);
        let stored_then = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| workers.run_worker(None));
            }
            scope.spawn(|| {
                token.cancel();
                stored_then.store(sink.stored_bytes(), Ordering::SeqCst);
            });
        });
        let (then, made) = (stored_then.load(Ordering::SeqCst), sink.stored_bytes());
        // a worker notices it at the end of the tile that it has taken
        assert!(
            made <= then + 2 * ROW_BYTES,
            "{then} bytes then, {made} in the end"
        );
        match progress.failure.outcome() {
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}"),
            Ok(()) => assert_eq!(made, 2 * TENSOR_BYTES),
        }
    });
}
