//! The executor with plans built by hand: each tile is decoded once, is stored at its offset, and receives the byte ranges
//! that its decoder requested.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::support::recording_source::RecordingSource;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::catalog::Shape;
use anamnesis::execute::Executor;
use anamnesis::plan::{
    DecodeInput, Decoder, Grid, Job, JobWork, PartRange, PartRanges, Plan, TensorSpec,
};
use anamnesis::sink::{NullSink, Sink};
use anamnesis::{Checkpoint, Dtype, Result, remember};
use proptest::prelude::*;

/// A decoder without inputs: each output byte is derived from its offset.
#[derive(Debug)]
struct OffsetDecoder(Grid);

impl Decoder for OffsetDecoder {
    fn grid(&self) -> Grid {
        self.0
    }

    fn inputs(&self, _: Range<u64>) -> PartRanges {
        PartRanges::new()
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput { rows, dtype, .. } = parts;
        let at = |row: u64| dtype.nbytes(row * self.0.cols).unwrap();
        assert_eq!(at(rows.end) - at(rows.start), out.len() as u64);
        out.iter_mut()
            .zip(at(rows.start)..)
            .for_each(|(byte, i)| *byte = byte_at(i));
        Ok(())
    }
}

/// The byte that [`OffsetDecoder`] stores at this offset.
fn byte_at(i: u64) -> u8 {
    (i ^ i >> 8 ^ i >> 16).to_le_bytes()[0]
}

/// A sink that records offset and length of each write per output, and checks the bytes.
struct WriteLog(Mutex<Vec<Vec<(u64, u64)>>>);

impl Sink for WriteLog {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        self.0.lock().unwrap().resize(outputs.len(), Vec::new());
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        assert!(
            bytes
                .iter()
                .zip(start..)
                .all(|(byte, i)| *byte == byte_at(i))
        );
        self.0.lock().unwrap()[output].push((start, bytes.len() as u64));
        Ok(())
    }
}

fn job(grid: Grid, dtype: Dtype) -> Job {
    Job {
        output: TensorSpec::new("x", Shape::from_slice(&[grid.rows, grid.cols]), dtype),
        scheme: "offsets",
        parts: Vec::new(),
        work: JobWork::Tiles {
            decoder: Arc::new(OffsetDecoder(grid)),
            rows: grid.rows_per_tile(dtype),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tiles_partition_the_output(
        rows in 0u64..5000, cols in 0u64..1500, step in 0u64..9, least in 0u64..2000, dtype in 0usize..5, threads in 1usize..4,
    ) {
        let dtype = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::U8, Dtype::F64][dtype];
        let grid = Grid { rows, cols, step, least };
        let jobs = vec![job(grid, dtype), job(Grid { rows: 3, ..grid }, dtype)];
        for job in &jobs {
            let JobWork::Tiles { decoder, rows: per_tile } = &job.work else { unreachable!() };
            let mut next = 0;
            for tile in job.tiles() {
                prop_assert_eq!(tile.rows.start, next);
                prop_assert!(tile.rows.start.is_multiple_of(step.max(1)) && tile.rows.end > next);
                prop_assert!(tile.rows.end - next == *per_tile || tile.rows.end == decoder.grid().rows);
                next = tile.rows.end;
            }
            prop_assert!(next == decoder.grid().rows || cols == 0);
        }
        let plan = Plan { jobs, ..Plan::default() };
        let checkpoint = Checkpoint::from_bytes(safetensors(&[], &[])).unwrap();
        let mut log = WriteLog(Mutex::default());
        let mut reported = 0;
        Executor::new(&checkpoint, &plan)
            .threads(threads)
            .progress(|progress| reported = progress.done)
            .run(&mut log)
            .unwrap();
        prop_assert_eq!(reported, plan.nbytes());
        for (mut writes, job) in log.0.into_inner().unwrap().into_iter().zip(&plan.jobs) {
            writes.sort_unstable();
            let end = writes.iter().try_fold(0, |at, &(start, len)| (start == at).then_some(at + len));
            prop_assert_eq!(end, job.output.nbytes());
        }
    }
}

#[test]
fn rows_without_elements_have_no_tiles() {
    for rows in [1, u64::MAX] {
        let plan = Plan {
            jobs: vec![job(Grid::new(rows, 0), Dtype::BF16)],
            ..Plan::default()
        };
        assert_eq!(plan.jobs[0].tiles().count(), 0);
        let checkpoint = Checkpoint::from_bytes(safetensors(&[], &[])).unwrap();
        Executor::new(&checkpoint, &plan)
            .threads(1)
            .run(&mut NullSink)
            .unwrap();
    }
    // shapes of a file
    for shape in [
        &[1 << 60, 0][..],
        &[0, 1 << 60],
        &[1 << 40, 1 << 40, 0],
        &[1 << 40, 0, 1 << 40],
    ] {
        let file = safetensors(
            &[StoredTensor::new("a.weight", "F8_E4M3", shape, Vec::new())],
            &[],
        );
        let checkpoint = Checkpoint::from_bytes(file).unwrap();
        let all = remember(&checkpoint).threads(1).all().unwrap();
        assert!(all[0].bytes.is_empty() && all[0].spec.shape[..] == *shape);
    }
}

/// A decoder that reads runs with gaps: every third pair of bytes, two pairs for a row of four elements.
#[derive(Debug)]
struct StridedDecoder;

impl Decoder for StridedDecoder {
    fn grid(&self) -> Grid {
        Grid::new(4, 4)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        PartRanges::from_iter([PartRange::strided(
            0,
            rows.start * 12..rows.start * 12 + 2,
            (rows.end - rows.start) * 2,
            6,
        )])
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput { inputs, rows, .. } = parts;
        let runs = usize::try_from(rows.end - rows.start).unwrap() * 2;
        (0..runs).for_each(|i| out[2 * i..][..2].copy_from_slice(inputs[0].run(i)));
        Ok(())
    }
}

#[test]
fn strided_inputs_are_the_same_borrowed_and_read() {
    let bytes: Vec<u8> = (0..48).collect();
    let file = safetensors(&[StoredTensor::new("x", "U8", &[48], bytes)], &[]);
    let expected: Vec<u8> = (0..8u8).flat_map(|i| [6 * i, 6 * i + 1]).collect();
    let reads = Arc::new(Mutex::new(Vec::new()));
    let recorded = Checkpoint::from_source(RecordingSource {
        bytes: file.clone(),
        reads: reads.clone(),
    })
    .unwrap();
    for checkpoint in [&recorded, &Checkpoint::from_bytes(file).unwrap()] {
        let output = TensorSpec::new("x", Shape::from_slice(&[4, 4]), Dtype::U8);
        let work = JobWork::Tiles {
            decoder: Arc::new(StridedDecoder),
            rows: 3,
        };
        let parts = vec![anamnesis::plan::StoredPart {
            role: "x",
            tensor: 0,
        }];
        let plan = Plan {
            jobs: vec![Job {
                output,
                scheme: "strided",
                parts,
                work,
            }],
            ..Plan::default()
        };
        let mut out = vec![0; 16];
        let mut sink = anamnesis::sink::MemorySink::new(vec![&mut out]);
        reads.lock().unwrap().clear();
        Executor::new(checkpoint, &plan)
            .threads(1)
            .run(&mut sink)
            .unwrap();
        assert_eq!(out, expected);
        let planned: Vec<_> = plan
            .reads(checkpoint.catalog())
            .map(|r| (r.start, r.len))
            .collect();
        assert_eq!(planned.len(), 8);
        let read = reads.lock().unwrap();
        assert!(*read == planned || read.is_empty(), "{read:?}");
    }
}
