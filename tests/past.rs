//! Elements stored past the caches are those that are stored plainly: every scheme, every tile.

mod common;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anamnesis::execute::execute;
use anamnesis::plan::{Decoder, Grid, Parts, Plan, Spans, Work};
use anamnesis::sink::Memory;
use anamnesis::{Checkpoint, Dtype, Result, remember};
use common::corpus;

/// A decoder that always stores past the caches.
#[derive(Debug)]
struct Past(Arc<dyn Decoder>);

impl Decoder for Past {
    fn grid(&self) -> Grid {
        self.0.grid()
    }

    fn shared(&self) -> Spans {
        self.0.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        self.0.inputs(rows)
    }

    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()> {
        self.0.decode_past(parts, &mut Vec::new(), out)
    }
}

fn made(checkpoint: &Checkpoint, plan: &Plan) -> Result<Vec<Vec<u8>>> {
    let room = |nbytes: u64| vec![0xaa; usize::try_from(nbytes).unwrap()];
    let mut outputs: Vec<_> = plan
        .jobs
        .iter()
        .map(|job| room(job.output.nbytes().unwrap()))
        .collect();
    let mut sink = Memory::new(outputs.iter_mut().map(|output| &mut output[..]).collect());
    execute(checkpoint, plan, None, &mut sink, 2, &mut |_| {
        ControlFlow::Continue(())
    })?;
    Ok(outputs)
}

#[test]
fn elements_are_the_same_past_the_caches() {
    let fixtures = common::fixtures().into_iter().map(|(path, _)| path);
    let mut weights = 0;
    for path in fixtures.chain(corpus::quantised()) {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        for dtype in [Dtype::BF16, Dtype::F32] {
            let plan = || remember(&checkpoint).dtype(dtype).cast(true).plan();
            let (Ok(plan), Ok(mut past)) = (plan(), plan()) else {
                continue;
            };
            for job in &mut past.jobs {
                if let Work::Tiles { decoder, .. } = &mut job.work {
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
