//! Non-temporal stores write the same elements as ordinary ones: every scheme, every tile.

use std::ops::Range;
use std::sync::Arc;

use crate::support;
use crate::support::corpus;
use anamnesis::execute::Executor;
use anamnesis::plan::{DecodeInput, Decoder, Grid, JobWork, PartRanges, Plan};
use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, Result, remember};

/// A decoder that always uses non-temporal stores.
#[derive(Debug)]
struct Past(Arc<dyn Decoder>);

impl Decoder for Past {
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

fn made(checkpoint: &Checkpoint, plan: &Plan) -> Result<Vec<Vec<u8>>> {
    let room = |nbytes: u64| vec![0xaa; usize::try_from(nbytes).unwrap()];
    let mut outputs: Vec<_> = plan
        .jobs
        .iter()
        .map(|job| room(job.output.nbytes().unwrap()))
        .collect();
    let mut sink = MemorySink::new(outputs.iter_mut().map(|output| &mut output[..]).collect());
    Executor::new(checkpoint, plan).threads(2).run(&mut sink)?;
    Ok(outputs)
}

#[test]
fn non_temporal_stores_write_the_same_elements() {
    let fixtures = support::fixtures().into_iter().map(|(path, _)| path);
    let mut weights = 0;
    for path in fixtures.chain(corpus::quantised_files()) {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        for dtype in [Dtype::BF16, Dtype::F32] {
            let plan = || remember(&checkpoint).dtype(dtype).cast(true).plan();
            let (Ok(plan), Ok(mut past)) = (plan(), plan()) else {
                continue;
            };
            for job in &mut past.jobs {
                if let JobWork::Tiles { decoder, .. } = &mut job.work {
                    *decoder = Arc::new(Past(Arc::clone(decoder)));
                    weights += 1;
                }
            }
            match (made(&checkpoint, &plan), made(&checkpoint, &past)) {
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
