//! Opens and reads the malformed files of the shared corpus in every open mode: a file is accepted or rejected as the manifest
//! says, within a time limit, and never with an I/O error.

use std::time::Duration;

use anamnesis::{Checkpoint, ErrorKind, Layout, Result};

use super::corpus::{CorpusEntry, Expectation, corpus_entries};
use super::open_modes::{OPEN_MODES, OpenMode};
use super::testing::ThreadTime;

/// The formats of the corpus, with the least number of malformed files of each.
const FORMATS: [(&str, usize); 5] = [
    ("safetensors", 90),
    ("gguf", 100),
    ("npy", 38),
    ("npz", 66),
    ("pth", 154),
];

/// Limit of opening a file and of reading all its tensors, in optimised and unoptimised builds.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Opens every malformed file in every mode, reads the tensors that it lists, and returns the outcomes that are not allowed.
/// `None`, with a note on stderr, if the corpus is not installed. `ANAMNESIS_SHOW` prints each outcome.
pub fn violations() -> Option<Vec<String>> {
    let entries = corpus_entries("malformed", &FORMATS.map(|(format, _)| format))?;
    for (format, minimum) in FORMATS {
        let count = entries.iter().filter(|e| e.format == format).count();
        assert!(count >= minimum, "only {count} malformed files of {format}");
    }
    let each = entries
        .iter()
        .flat_map(|entry| OPEN_MODES.map(|mode| (entry, mode)));
    Some(
        each.flat_map(|(entry, mode)| violations_of(entry, mode))
            .collect(),
    )
}

fn violations_of(entry: &CorpusEntry, mode: OpenMode) -> Vec<String> {
    let mut violations = Vec::new();
    let start = ThreadTime::start();
    let opened = mode.open(&entry.path, entry.format());
    let open_time = start.elapsed();
    let outcome = opened.and_then(|checkpoint| {
        read_all(&checkpoint)?;
        // one malformed member of an archive is refused by itself: reading it by name is what must fail
        if let (Some(refused), Expectation::MustReject | Expectation::ShouldReject) =
            (checkpoint.catalog().refused().first(), entry.expect)
        {
            anamnesis::load(&checkpoint).tensor(&refused.name)?;
        }
        // it may be over a limit
        let _ = anamnesis::fit(&checkpoint).memory(1 << 30).estimate();
        // stored bytes that cannot be decoded are compared as they are
        if let Ok(found) = anamnesis::diff(&checkpoint, &checkpoint).run() {
            // without a tensor nothing is compared, and so nothing is the same
            let is_without_tensors = found.compared == 0 && found.tensors.is_empty();
            // and what cannot be read is not compared
            let is_unread = !checkpoint.catalog().refused().is_empty();
            assert!(
                found.same || is_without_tensors || is_unread,
                "{}: {found:?}",
                entry.name
            );
        }
        Ok(checkpoint.inspect()?.tensors.len())
    });
    let total_time = start.elapsed();
    if mode == OpenMode::Mapped && std::env::var_os("ANAMNESIS_SHOW").is_some() {
        eprintln!("{:?} {}: {outcome:?}", entry.expect, entry.name);
    }
    match (entry.expect, &outcome) {
        (Expectation::MustReject | Expectation::ShouldReject, Ok(_)) => {
            violations.push(format!("accepted ({})", entry.why))
        }
        (Expectation::MustAccept, Err(e)) => violations.push(format!("rejected: {e}")),
        (
            Expectation::MustReject
            | Expectation::ShouldReject
            | Expectation::MustAccept
            | Expectation::MayAccept,
            _,
        ) => {}
        (expectation, _) => violations.push(format!(
            "{expectation:?} is not an expectation for a malformed file"
        )),
    }
    if let Err(e) = &outcome
        && matches!(e.kind(), ErrorKind::Io(_))
    {
        violations.push(format!("an I/O error instead of one about the file: {e}"));
    }
    if open_time > TIME_LIMIT || total_time > TIME_LIMIT {
        violations.push(format!(
            "took {open_time:?} to open, {total_time:?} to open and read"
        ));
    }
    violations
        .into_iter()
        .map(|violation| format!("{} ({mode:?}): {violation}", entry.name))
        .collect()
}

/// Reads every listed tensor that has stored bytes.
fn read_all(checkpoint: &Checkpoint) -> Result<()> {
    checkpoint
        .tensors()
        .try_for_each(|tensor| match tensor.info().layout {
            // well-formed files list such tensors too: refusing their bytes is not an error of the file
            Layout::Absent | Layout::Sparse(_) => {
                assert!(tensor.bytes().is_err(), "bytes of a tensor without data");
                Ok(())
            }
            _ => tensor.chunks(|_| Ok(())),
        })
}
