//! Runs through good files, and those whose refusal is agreed on: every way gives what the manifest says.

use std::time::Duration;

use anamnesis::{Checkpoint, Error};

use super::corpus::{Entry, corpus};
use super::manifest_exceptions::Instead;
use super::open_modes::{OPEN_MODES, OpenMode};
use super::testing::ThreadTime;

/// Opening and hashing all there is in one file of the corpus takes no longer.
const TIME: Duration = Duration::from_secs(2);

/// Checks the entries of a set; at least `least` tensors must have been compared.
pub fn check_set(set: &str, formats: &[&str], least: usize) {
    if let Some(entries) = corpus(set, formats) {
        check(set, &entries, least);
    }
}

pub fn check(set: &str, entries: &[Entry], least: usize) {
    let (mut wrong, mut tensors) = (Vec::new(), 0);
    for entry in entries {
        for way in OPEN_MODES {
            let said = |what: String| format!("{} ({way:?}): {what}", entry.name);
            let began = ThreadTime::start();
            match way.open(&entry.path, entry.format()) {
                Err(e) => wrong.extend(refused(entry, way, &e).map(said)),
                Ok(_) if must_refuse(entry, way) => {
                    wrong.push(said(format!("accepted ({})", entry.why)))
                }
                Ok(checkpoint) => wrong.extend(accepted(entry, &checkpoint).into_iter().map(said)),
            }
            if began.elapsed() > TIME {
                wrong.push(said(format!("took {:?}", began.elapsed())));
            }
        }
        if !must_refuse(entry, OpenMode::Mapped) {
            tensors += entry.tensors().len();
        }
    }
    println!(
        "{set}: {} entries, {tensors} tensors, {} wrong",
        entries.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tensors >= least, "{set}: only {tensors} tensors");
}

/// Whether this way must end in an error.
fn must_refuse(entry: &Entry, way: OpenMode) -> bool {
    let alone = entry.exceptions().any(|e| matches!(e, Instead::OnlyByPath));
    let alone = alone
        && (matches!(way, OpenMode::Bytes | OpenMode::Reader)
            || !way.has_path() && entry.format().is_none());
    !entry.is_good() || entry.refusal().is_some() || alone
}

/// What is wrong with a refusal.
fn refused(entry: &Entry, way: OpenMode, e: &Error) -> Option<String> {
    if !must_refuse(entry, way) {
        return Some(format!("refused: {e}"));
    }
    let (kind, text) = entry.refusal()?;
    let right = e.kind().name() == kind && e.to_string().contains(text);
    (!right).then(|| format!("refused, but not as {kind} ({text}): {e}"))
}

/// What is wrong with a listing.
fn accepted(entry: &Entry, checkpoint: &Checkpoint) -> Vec<String> {
    let summary = checkpoint.inspect();
    let mut wrong = entry.differences(checkpoint);
    if summary.tensors.len() != checkpoint.catalog().tensors().len() {
        wrong.push("the summary leaves tensors out".into());
    }
    wrong
}
