//! The second pass: the values of tensors whose bytes differ, or are not comparable.

use std::sync::Arc;

use crate::base::error::{ErrorKind, Result};
use crate::base::progress::RunProgress;
use crate::plan::decode::{Cast, TransposedMatrices};
use crate::plan::{Job, JobWork};
use crate::read::catalog::elements;

use super::alike::{SideTensor, is_squeezed, is_swapped};
use super::compared_pairs::ComparedPairs;
use super::outcome::PairOutcome;
use super::sides::WHAT;
use super::values::{self, SideJob, ValueComparison};

/// Compares the values of all pairs whose bytes are not known to be equal, and sets what is found in their outcomes.
pub(super) fn run(pairs: &ComparedPairs<'_, '_>, outcomes: &mut [PairOutcome]) -> Result<()> {
    // no pass at all, rather than one that reports a progress of 0 bytes
    if outcomes.iter().all(PairOutcome::has_equal_bytes) {
        return Ok(());
    }
    let transposed: Vec<Option<Job>> = pairs
        .pairs
        .iter()
        .map(|pair| exchanged(pairs.sides(pair)))
        .collect();
    let (mut items, mut list) = (Vec::new(), Vec::new());
    for (item, pair) in pairs.pairs.iter().enumerate() {
        if outcomes[item].has_equal_bytes() {
            continue;
        }
        let (x, y) = pairs.sides(pair);
        let (Some(x_job), Some(mut y_job)) = (x.numbers(), y.numbers()) else {
            continue;
        };
        if let Some(job) = &transposed[item] {
            y_job = job;
        // elements of other shapes have no counterparts
        } else if !is_squeezed(x.shape(), y.shape()) {
            continue;
        }
        let x_job = SideJob {
            checkpoint: pairs.a.checkpoint,
            job: x_job,
        };
        let y_job = SideJob {
            checkpoint: pairs.b.checkpoint,
            job: y_job,
        };
        match ValueComparison::new(x_job, y_job, x.elements()) {
            Ok(comparison) => {
                pairs.budget.push(&mut items, item, WHAT)?;
                pairs.budget.push(&mut list, comparison, WHAT)?;
            }
            // whether it is transposed is a remark
            Err(e) if transposed[item].is_some() && matches!(e.kind(), ErrorKind::Limit { .. }) => {
            }
            Err(e) => return Err(e),
        }
    }
    let total = list.iter().map(ValueComparison::nbytes);
    let total = total.fold(0, u64::saturating_add);
    let progress = RunProgress::new(total, &pairs.diff.options.control);
    // a tolerance on a sum is decided by all values
    let first_only = pairs.diff.verdict_only && pairs.diff.tolerance.is_none();
    values::compare(&list, first_only, pairs.threads, &progress)?;
    progress.finish();
    for (item, comparison) in items.into_iter().zip(list) {
        let sums = comparison.sums();
        if transposed[item].is_some() {
            // only if all are equal: of similar matrices, a few transposed values agree by chance
            outcomes[item].transposed = sums.differing == 0;
        } else {
            outcomes[item].sums = Some(sums);
        }
    }
    Ok(())
}

/// The job that makes the second tensor in the order of the first, where the last two dimensions are exchanged.
fn exchanged((a, b): (SideTensor<'_, '_>, SideTensor<'_, '_>)) -> Option<Job> {
    if !is_swapped(a.shape(), b.shape()) {
        return None;
    }
    let ([outer @ .., rows, cols], job) = (b.shape(), b.numbers()?) else {
        return None;
    };
    let inner: Arc<dyn crate::plan::Decoder> = match &job.work {
        JobWork::Tiles { decoder, .. } => Arc::clone(decoder),
        // read whole, and in memory then
        JobWork::Stream { from, .. } => Arc::new(Cast {
            from: *from,
            elements: b.elements(),
        }),
    };
    let decoder = TransposedMatrices {
        inner,
        matrices: elements(outer)?,
        rows: *rows,
        cols: *cols,
    };
    let rows = crate::plan::Decoder::grid(&decoder).rows_per_tile(job.output.dtype);
    let mut job = job.clone();
    job.output.shape = crate::read::catalog::Shape::from_slice(a.shape());
    job.work = JobWork::Tiles {
        decoder: Arc::new(decoder),
        rows,
    };
    Some(job)
}
