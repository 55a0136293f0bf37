//! Runs through hostile files: each way ends in an answer, in time.

use std::time::Duration;

use anamnesis::{Checkpoint, ErrorKind, Layout, Result};

use super::corpus::{Entry, Expect, corpus};
use super::open_modes::{OPEN_MODES, OpenMode};
use super::testing::ThreadTime;

/// The formats of the corpus, and how many hostile files of each there are at least.
const FORMATS: [(&str, usize); 5] = [
    ("safetensors", 90),
    ("gguf", 100),
    ("npy", 38),
    ("npz", 66),
    ("pth", 154),
];

/// Opening a file takes no longer, nor does reading all that it lists, with or without optimisation.
const TIME: Duration = Duration::from_secs(2);

/// Opens every hostile file in every way and reads what it lists; says what is wrong with the answers.
/// `None`, said aloud, where the corpus is not there.
pub fn answers() -> Option<Vec<String>> {
    let entries = corpus("malformed", &FORMATS.map(|(format, _)| format))?;
    for (format, least) in FORMATS {
        let count = entries.iter().filter(|e| e.format == format).count();
        assert!(count >= least, "only {count} hostile files of {format}");
    }
    let each = entries
        .iter()
        .flat_map(|entry| OPEN_MODES.map(|way| (entry, way)));
    Some(each.flat_map(|(entry, way)| answer(entry, way)).collect())
}

fn answer(entry: &Entry, way: OpenMode) -> Vec<String> {
    let mut wrong = Vec::new();
    let began = ThreadTime::start();
    let opened = way.open(&entry.path, entry.format());
    let opening = began.elapsed();
    let outcome = opened.and_then(|checkpoint| {
        read(&checkpoint)?;
        Ok(checkpoint.inspect().tensors.len())
    });
    let both = began.elapsed();
    if way == OpenMode::Mapped && std::env::var_os("ANAMNESIS_SHOW").is_some() {
        eprintln!("{:?} {}: {outcome:?}", entry.expect, entry.name);
    }
    match (entry.expect, &outcome) {
        (Expect::MustReject | Expect::ShouldReject, Ok(_)) => {
            wrong.push(format!("accepted ({})", entry.why))
        }
        (Expect::MustAccept, Err(e)) => wrong.push(format!("refused: {e}")),
        (Expect::MustReject | Expect::ShouldReject | Expect::MustAccept | Expect::MayAccept, _) => {
        }
        (other, _) => wrong.push(format!("{other:?} is not an expectation of a hostile file")),
    }
    if let Err(e) = &outcome
        && matches!(e.kind(), ErrorKind::Io(_))
    {
        wrong.push(format!("the file is to blame, not its reading: {e}"));
    }
    if opening > TIME || both > TIME {
        wrong.push(format!("took {opening:?} to open, {both:?} with reading"));
    }
    wrong
        .into_iter()
        .map(|what| format!("{} ({way:?}): {what}", entry.name))
        .collect()
}

/// Reads what has bytes of its own: what is listed must also be readable, or say why not.
fn read(checkpoint: &Checkpoint) -> Result<()> {
    checkpoint
        .tensors()
        .try_for_each(|tensor| match tensor.info().layout {
            // no sign of a hostile file
            Layout::Absent | Layout::Sparse(_) => {
                assert!(tensor.bytes().is_err(), "bytes of what has none");
                Ok(())
            }
            _ => tensor.chunks(|_| Ok(())),
        })
}
