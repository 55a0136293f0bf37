//! The order of the work: headers, bytes, values.

use crate::base::error::Result;
use crate::base::threads::thread_count_for;
use crate::plan::Job;

use super::compared_pairs::ComparedPairs;
use super::differences::Differences;
use super::outcome::PairOutcome;
use super::pairing::{PairedBy, Pairing, TensorPair};
use super::rename::RenameRules;
use super::rows::{self, Listing};
use super::sides::{Side, WHAT};
use super::{CheckpointDiff, bytes_pass, config, content, metadata, tied, values_pass};

pub(super) fn run(diff: &CheckpointDiff<'_>) -> Result<Differences> {
    let (a, b) = (&*diff.a, &*diff.b);
    let budget = a.budget();
    // both checkpoints are in memory at once
    budget.keep_too(b.kept(), WHAT)?;
    let (mut notes, cancel) = (Vec::new(), diff.options.control.token());
    let (rename, none) = (RenameRules::new(&diff.rename), RenameRules::default());
    let mut side_of = |checkpoint, rename: &RenameRules<'_>, name: &str| {
        let mut own = Vec::new();
        let side = Side::new(checkpoint, rename, cancel, &budget, &mut own)?;
        notes.extend(own.into_iter().map(|note| format!("{name}: {note}")));
        notes.extend(side.unreadable().map(|note| format!("{name}: {note}")));
        let others = side.checkpoint.other_models();
        notes.extend(others.map(|note| format!("{name}: {note}")));
        let cache = side.checkpoint.cache_warning();
        notes.extend(cache.map(|note| format!("{name}: {note}")));
        Ok::<_, crate::base::error::Error>(side)
    };
    let mut side_a = side_of(a, &rename, "A")?;
    let mut side_b = side_of(b, &none, "B")?;
    let mut pairing = Pairing::new(
        &mut side_a,
        &mut side_b,
        &rename,
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
    let mut sidecars = Vec::new();
    sidecars.extend(config.as_ref().map(|_| "config.json"));
    if let Some(note) = config::tokenizers(a, b)? {
        sidecars.push(config::TOKENIZER);
        notes.extend(note);
    }
    let metadata = metadata::differences(a, b, &budget)?;
    // the cheap differences first: headers and configuration may make reading unnecessary
    let decided = diff.verdict_only
        && (differs_by_headers(diff, &pairing, &side_a, &side_b)
            || config.as_ref().is_some_and(|config| !config.is_empty())
            || diff.metadata && !metadata.is_empty());
    // a rule that fits no name is a mistake, which the caller hears before gigabytes are read
    let unused_renames = rename.unused();
    let headers_only = diff.headers_only || !unused_renames.is_empty();
    let reads = !headers_only && !decided;
    let total = |side: &Side<'_>| side.catalog().nbytes();
    let threads = thread_count_for(diff.options.threads, total(&side_a).max(total(&side_b)));
    let outcomes = if reads {
        let control = &diff.options.control;
        content::pair(&mut pairing, &side_a, &side_b, threads, control, &budget)?;
        compare(&ComparedPairs {
            diff,
            pairs: &pairing.pairs,
            a: &side_a,
            b: &side_b,
            threads,
            budget: &budget,
        })?
    } else {
        Vec::new()
    };
    let heads = if reads && !diff.verdict_only {
        tied::notes(&pairing, &side_a, &side_b, threads, &diff.options.control)?
    } else {
        tied::HeadNotes::default()
    };
    if headers_only {
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
        unread: [&side_a, &side_b]
            .into_iter()
            .map(|side| unread(diff, side))
            .sum(),
        sidecars,
        headers_only,
        unused_renames,
        config,
        metadata,
    };
    rows::listed(listing, &budget)
}

/// The entries of a side that cannot be read, of those that the caller's filter accepts.
fn unread(diff: &CheckpointDiff<'_>, side: &Side<'_>) -> usize {
    let is_meant =
        |name: &str| diff.options.selection.contains(name) && diff.not_excluded.contains(name);
    let entries = side.catalog().refused.iter();
    entries.filter(|entry| is_meant(&entry.name)).count()
}

/// Retains the tensors that the caller's filter accepts by a name of either side, and that are not excluded by one.
fn select(diff: &CheckpointDiff<'_>, pairing: &mut Pairing, a: &Side<'_>, b: &Side<'_>) {
    let keeps = |names: &[&str]| {
        names
            .iter()
            // one name is enough to select or exclude, since a caller knows the names of one side
            .any(|name| diff.options.selection.contains(name))
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
    // no header says that values differ
    !diff.values && (alone || pairing.pairs.iter().any(differs))
}

/// Compares all pairs: bytes where they are stored alike, then values where bytes differ or were not compared.
fn compare(pairs: &ComparedPairs<'_, '_>) -> Result<Vec<PairOutcome>> {
    const PAIR: u64 = (size_of::<PairOutcome>() + size_of::<Option<Job>>()) as u64;
    let count = pairs.pairs.len();
    pairs.budget.memory(PAIR * count as u64, WHAT)?;
    let mut outcomes = vec![PairOutcome::default(); count];
    bytes_pass::run(pairs, &mut outcomes)?;
    if !pairs.first_byte_decides() {
        values_pass::run(pairs, &mut outcomes)?;
    }
    Ok(outcomes)
}
