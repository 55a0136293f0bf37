//! The order of the work: headers, bytes, values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::{ErrorKind, Result};
use crate::base::limits::Budget;
use crate::base::progress::RunProgress;
use crate::base::sync::AtomicBool;
use crate::base::threads::thread_count_for;
use crate::plan::decode::{Cast, TransposedMatrices};
use crate::plan::{Job, JobWork};
use crate::read::catalog::elements;

use super::alike::{Identities, SideTensor, is_alike, is_same_bytes, is_squeezed, is_swapped};
use super::bytes::{self, ByteComparison};
use super::differences::Differences;
use super::outcome::PairOutcome;
use super::pairing::{PairedBy, Pairing, TensorPair};
use super::rows::{self, Listing};
use super::sides::{Side, WHAT};
use super::tensor_bytes::TensorBytes;
use super::values::{self, SideJob, ValueComparison};
use super::{CheckpointDiff, config, content, identity, metadata, tied};

pub(super) fn run(diff: &CheckpointDiff<'_>) -> Result<Differences> {
    let (a, b) = (&*diff.a, &*diff.b);
    let budget = a.budget();
    budget.memory(b.budget().in_use(), WHAT)?;
    let (mut notes, cancel) = (Vec::new(), diff.options.control.token());
    let mut side_of = |checkpoint, rename, name: &str| {
        let mut own = Vec::new();
        let side = Side::new(checkpoint, rename, cancel, &budget, &mut own)?;
        notes.extend(own.into_iter().map(|note| format!("{name}: {note}")));
        notes.extend(side.unreadable().map(|note| format!("{name}: {note}")));
        Ok::<_, crate::base::error::Error>(side)
    };
    let mut side_a = side_of(a, &diff.rename[..], "A")?;
    let mut side_b = side_of(b, &[], "B")?;
    let rename = &diff.rename;
    let mut pairing = Pairing::new(
        &mut side_a,
        &mut side_b,
        rename,
        cancel,
        &budget,
        &mut notes,
    )?;
    let (side_a, side_b) = (side_a, side_b);
    select(diff, &mut pairing, &side_a, &side_b);
    diff.options.control.check()?;
    let (config, note) = if diff.config {
        config::differences(a, b, &budget)?
    } else {
        (None, None)
    };
    notes.extend(note);
    if let Some(note) = config::tokenizers(a, b)? {
        notes.push(note);
    }
    let metadata = metadata::differences(a, b, &budget)?;
    let decided = diff.verdict_only
        && (differs_by_headers(diff, &pairing, &side_a, &side_b)
            || config.as_ref().is_some_and(|config| !config.is_empty())
            || diff.metadata && !metadata.is_empty());
    let reads = !diff.headers_only && !decided;
    let total = |side: &Side<'_>| side.catalog().nbytes();
    let threads = thread_count_for(diff.options.threads, total(&side_a).max(total(&side_b)));
    let outcomes = if reads {
        let control = &diff.options.control;
        content::pair(&mut pairing, &side_a, &side_b, threads, control, &budget)?;
        compare(diff, &pairing, &side_a, &side_b, threads, &budget)?
    } else {
        Vec::new()
    };
    let heads = if reads && !diff.verdict_only {
        tied::notes(&pairing, &side_a, &side_b, threads, &diff.options.control)?
    } else {
        tied::HeadNotes::default()
    };
    if diff.headers_only {
        notes.push("headers alone were compared".to_owned());
    }
    let listing = Listing {
        diff,
        a: &side_a,
        b: &side_b,
        pairing: &pairing,
        outcomes: &outcomes,
        heads: &heads,
        notes,
        config,
        metadata,
    };
    rows::listed(listing, &budget)
}

/// Retains the tensors that the caller's filter accepts by a name of either side, and that are not excluded by one.
fn select(diff: &CheckpointDiff<'_>, pairing: &mut Pairing, a: &Side<'_>, b: &Side<'_>) {
    let keeps = |names: &[&str]| {
        names.iter().any(|name| diff.options.selection.contains(name))
            && names.iter().all(|name| diff.not_excluded.contains(name))
    };
    let names = |side: &Side<'_>, i: usize| {
        let tensor = &side.tensors[i];
        [tensor.name.to_string(), tensor.key().to_owned()]
    };
    let kept = |names: Vec<String>| keeps(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    pairing
        .pairs
        .retain(|pair| kept([names(a, pair.a), names(b, pair.b)].concat()));
    pairing.only_a.retain(|i| kept(names(a, *i).to_vec()));
    pairing.only_b.retain(|j| kept(names(b, *j).to_vec()));
}

/// Whether names, shapes and dtypes alone say that they differ.
fn differs_by_headers(
    diff: &CheckpointDiff<'_>,
    pairing: &Pairing,
    a: &Side<'_>,
    b: &Side<'_>,
) -> bool {
    let differs = |pair: &TensorPair| {
        let (x, y) = (&a.tensors[pair.a], &b.tensors[pair.b]);
        pair.by != PairedBy::Name
            || a.shape(x) != b.shape(y)
            || (a.dtype(x), a.scheme(x)) != (b.dtype(y), b.scheme(y))
    };
    let alone = !(pairing.only_a.is_empty() && pairing.only_b.is_empty());
    // of values, no header says that they differ
    !diff.values && (alone || pairing.pairs.iter().any(differs))
}

/// Compares all pairs: bytes where they are stored alike, then values where bytes differ or were not compared.
fn compare(
    diff: &CheckpointDiff<'_>,
    pairing: &Pairing,
    a: &Side<'_>,
    b: &Side<'_>,
    threads: usize,
    budget: &Budget,
) -> Result<Vec<PairOutcome>> {
    let pairs = &pairing.pairs;
    let sides = |pair: &TensorPair| {
        let x = SideTensor {
            side: a,
            tensor: &a.tensors[pair.a],
        };
        let y = SideTensor {
            side: b,
            tensor: &b.tensors[pair.b],
        };
        (x, y)
    };
    const PAIR: u64 = (size_of::<PairOutcome>() + size_of::<Option<Job>>()) as u64;
    budget.memory(PAIR * pairs.len() as u64, WHAT)?;
    let mut outcomes = vec![PairOutcome::default(); pairs.len()];
    let files = Identities {
        a: identity::of(a.checkpoint),
        b: identity::of(b.checkpoint),
    };
    let mut list = Vec::new();
    for (item, pair) in pairs.iter().enumerate() {
        let (x, y) = sides(pair);
        if !is_alike(x, y) || is_swapped(x.shape(), y.shape()) {
            continue;
        }
        outcomes[item].bytes_equal = Some(true);
        if is_same_bytes(x, y, &files) {
            continue;
        }
        for (x_info, y_info) in x.stored().into_iter().zip(y.stored()) {
            let comparison = ByteComparison {
                a: TensorBytes::new(x.side.checkpoint, x_info)?,
                b: TensorBytes::new(y.side.checkpoint, y_info)?,
                item,
            };
            budget.push(&mut list, comparison, WHAT)?;
        }
    }
    let differs: Vec<AtomicBool> = pairs.iter().map(|_| AtomicBool::new(false)).collect();
    let total = list.iter().map(ByteComparison::nbytes);
    let progress = RunProgress::new(total.fold(0, u64::saturating_add), &diff.options.control);
    let first_only = diff.verdict_only && !diff.values;
    bytes::compare(&list, &differs, first_only, threads, &progress)?;
    progress.finish();
    drop(list);
    for (outcome, differs) in outcomes.iter_mut().zip(&differs) {
        if differs.load(Ordering::Relaxed) {
            outcome.bytes_equal = Some(false);
        }
    }
    let others = outcomes
        .iter()
        .any(|outcome| outcome.bytes_equal != Some(true));
    if !others || first_only {
        return Ok(outcomes);
    }
    let mut transposed = Vec::new();
    for pair in pairs {
        let (x, y) = sides(pair);
        transposed.push(
            is_swapped(x.shape(), y.shape())
                .then(|| exchanged(x, y))
                .flatten(),
        );
    }
    let (mut items, mut list) = (Vec::new(), Vec::new());
    for (item, pair) in pairs.iter().enumerate() {
        if outcomes[item].bytes_equal == Some(true) {
            continue;
        }
        let (x, y) = sides(pair);
        let (Some(x_job), Some(mut y_job)) = (x.numbers(), y.numbers()) else {
            continue;
        };
        if let Some(job) = &transposed[item] {
            y_job = job;
        } else if !is_squeezed(x.shape(), y.shape()) {
            continue;
        }
        let (x_job, y_job) = (
            SideJob {
                checkpoint: a.checkpoint,
                job: x_job,
            },
            SideJob {
                checkpoint: b.checkpoint,
                job: y_job,
            },
        );
        match ValueComparison::new(x_job, y_job, x.elements()) {
            Ok(comparison) => {
                budget.push(&mut items, item, WHAT)?;
                budget.push(&mut list, comparison, WHAT)?;
            }
            // whether it is transposed is a remark
            Err(e) if transposed[item].is_some() && matches!(e.kind(), ErrorKind::Limit { .. }) => {
            }
            Err(e) => return Err(e),
        }
    }
    let total = list.iter().map(ValueComparison::nbytes);
    let progress = RunProgress::new(total.fold(0, u64::saturating_add), &diff.options.control);
    let first_only = diff.verdict_only && diff.tolerance.is_none();
    values::compare(&list, first_only, threads, &progress)?;
    progress.finish();
    for (item, comparison) in items.into_iter().zip(list) {
        let sums = comparison.sums();
        if transposed[item].is_some() {
            outcomes[item].transposed = sums.differing == 0;
        } else {
            outcomes[item].sums = Some(sums);
        }
    }
    Ok(outcomes)
}

/// The job that makes the second tensor in the order of the first, whose last two dimensions are exchanged.
fn exchanged(a: SideTensor<'_, '_>, b: SideTensor<'_, '_>) -> Option<Job> {
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
