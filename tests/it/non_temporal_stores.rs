//! Non-temporal stores write the same elements as ordinary stores: for the weights of every scheme, and for an output that is
//! larger than the caches, against the kernel's output.

use std::ops::Range;
use std::sync::Arc;

use crate::support;
use crate::support::corpus;
use crate::support::random::random_bytes;
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::execute::Executor;
use anamnesis::plan::{DecodeInput, Decoder, Grid, JobWork, PartRanges, Plan};
use anamnesis::sink::MemorySink;
use anamnesis::{BlockFormat, Checkpoint, Dtype, Result, kernel, remember};

/// A decoder that always uses non-temporal stores.
#[derive(Debug)]
struct NonTemporalDecoder(Arc<dyn Decoder>);

impl Decoder for NonTemporalDecoder {
    fn grid(&self) -> Grid {
        self.0.grid()
    }

    fn shared(&self) -> PartRanges {
        self.0.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.0.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        self.0.decode_streaming(parts, &mut Vec::new(), out)
    }
}

/// The outputs of a plan.
fn execute(checkpoint: &Checkpoint, plan: &Plan) -> Result<Vec<Vec<u8>>> {
    let buffer = |nbytes: u64| vec![0xaa; usize::try_from(nbytes).unwrap()];
    let mut outputs: Vec<_> = plan
        .jobs
        .iter()
        .map(|job| buffer(job.output.nbytes().unwrap()))
        .collect();
    let mut sink = MemorySink::new(outputs.iter_mut().map(|output| &mut output[..]).collect());
    Executor::new(checkpoint, plan).threads(2).run(&mut sink)?;
    Ok(outputs)
}

#[test]
fn non_temporal_stores_do_not_change_the_elements() {
    let fixtures = support::fixtures().into_iter().map(|(path, _)| path);
    let mut weights = 0;
    for path in fixtures.chain(corpus::quantised_files()) {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        for dtype in [Dtype::BF16, Dtype::F32] {
            let plan = || remember(&checkpoint).dtype(dtype).cast(true).plan();
            let (Ok(plan), Ok(mut non_temporal)) = (plan(), plan()) else {
                continue;
            };
            for job in &mut non_temporal.jobs {
                if let JobWork::Tiles { decoder, .. } = &mut job.work {
                    *decoder = Arc::new(NonTemporalDecoder(Arc::clone(decoder)));
                    weights += 1;
                }
            }
            match (
                execute(&checkpoint, &plan),
                execute(&checkpoint, &non_temporal),
            ) {
                (Ok(expected), Ok(found)) => {
                    assert!(found == expected, "{} to {dtype}", path.display())
                }
                (Err(expected), Err(found)) => assert_eq!(found.to_string(), expected.to_string()),
                (expected, found) => panic!(
                    "{}: {:?}, {:?}",
                    path.display(),
                    expected.err(),
                    found.err()
                ),
            }
        }
    }
    assert!(weights > 600, "only {weights} weights");
}

#[test]
fn an_output_larger_than_the_caches_equals_the_kernels() {
    let format = BlockFormat::from_name("Q8_0").unwrap();
    // 72 MB of BF16; the first weight moves its start to the middle of a cache line
    let shapes: [&[u64]; 2] = [&[1, 32], &[36_000, 1024]];
    let blocks = shapes.map(|shape| {
        random_bytes(
            7,
            usize::try_from(format.nbytes(shape.iter().product()).unwrap()).unwrap(),
        )
    });
    let id = format.ggml_type.to_string();
    let stored: Vec<StoredTensor> = (0..2)
        .map(|i| StoredTensor::new(&format!("{i}.weight"), &id, shapes[i], blocks[i].clone()))
        .collect();
    let checkpoint =
        Checkpoint::from_bytes(gguf(false, &[("general.architecture", "llama")], &stored)).unwrap();
    let found = remember(&checkpoint).threads(2).all().unwrap();
    for (found, blocks) in found.iter().zip(&blocks) {
        let mut expected = vec![0; found.bytes.len()];
        kernel::dequantize(format, blocks, Dtype::BF16, &mut expected).unwrap();
        assert!(found.bytes == expected, "{}", found.spec);
    }
}
