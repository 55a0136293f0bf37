//! Opens the valid files of the corpus, and those that manifest and library reject, in every open mode and compares tensors and
//! hashes with the manifest, which the reference libraries made.

use std::time::Duration;

use anamnesis::{Checkpoint, Error};

use super::corpus::{CorpusEntry, corpus_entries};
use super::manifest_exceptions::Deviation;
use super::open_modes::{OPEN_MODES, OpenMode};
use super::testing::ThreadTime;

/// Limit of opening a file and hashing all its tensors.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Checks the entries of a corpus set in these formats.
pub fn check_corpus_set(set: &str, formats: &[&str], minimum: usize) {
    if let Some(entries) = corpus_entries(set, formats) {
        check_entries(set, &entries, minimum);
    }
}

/// Fails on any difference from the manifest, and if fewer than `minimum` tensors were compared.
pub fn check_entries(set: &str, entries: &[CorpusEntry], minimum: usize) {
    let (mut failures, mut tensors) = (Vec::new(), 0);
    for entry in entries {
        for mode in OPEN_MODES {
            let failure = |what: String| format!("{} ({mode:?}): {what}", entry.name);
            let start = ThreadTime::start();
            match mode.open(&entry.path, entry.format()) {
                Err(e) => failures.extend(rejection_failure(entry, mode, &e).map(failure)),
                Ok(_) if must_reject(entry, mode) => {
                    failures.push(failure(format!("accepted ({})", entry.why)))
                }
                Ok(checkpoint) => failures.extend(
                    listing_failures(entry, &checkpoint)
                        .into_iter()
                        .map(failure),
                ),
            }
            if start.elapsed() > TIME_LIMIT {
                failures.push(failure(format!("took {:?}", start.elapsed())));
            }
        }
        if !must_reject(entry, OpenMode::Mapped) {
            tensors += entry.tensors().len();
        }
    }
    println!(
        "{set}: {} entries, {tensors} tensors, {} failures",
        entries.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(tensors >= minimum, "{set}: only {tensors} tensors");
}

/// Whether opening in this mode must end in an error.
fn must_reject(entry: &CorpusEntry, mode: OpenMode) -> bool {
    let by_path_only = entry
        .deviations()
        .any(|e| matches!(e, Deviation::OpensByPathOnly));
    let without_name = by_path_only
        && (matches!(mode, OpenMode::Bytes | OpenMode::Reader)
            || !mode.has_path() && entry.format().is_none());
    !entry.is_valid() || entry.refusal().is_some() || without_name
}

/// Describes an error that is not the expected one.
fn rejection_failure(entry: &CorpusEntry, mode: OpenMode, e: &Error) -> Option<String> {
    if !must_reject(entry, mode) {
        return Some(format!("rejected: {e}"));
    }
    let (kind, text) = entry.refusal()?;
    let of_kind = kind.is_empty() || e.kind().name() == kind;
    let expected = of_kind && e.to_string().contains(text);
    (!expected).then(|| format!("rejected, but not as {kind} ({text}): {e}"))
}

/// Describes what differs between the listed tensors and the manifest.
fn listing_failures(entry: &CorpusEntry, checkpoint: &Checkpoint) -> Vec<String> {
    let summary = checkpoint.inspect().unwrap();
    let mut failures = entry.differences(checkpoint);
    if summary.tensors.len() != checkpoint.catalog().tensors().len() {
        failures.push("the summary omits tensors".into());
    }
    failures
}
