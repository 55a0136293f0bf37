//! The shared corpus, where it is there: every entry gives what its manifest says.

mod common;

use anamnesis::{Checkpoint, OpenOptions};
use common::{Expect, corpus, sha256};

/// Opens and hashes every entry of a format and compares with the manifest.
fn check(set: &str, formats: &[&str]) {
    let Some(entries) = corpus(set, formats) else { return };
    let mut wrong = Vec::new();
    let count = entries.len();
    for entry in entries {
        let started = std::time::Instant::now();
        let opened = OpenOptions::new().single(true).open(&entry.path);
        let outcome = opened.and_then(|checkpoint| common::listing(&checkpoint));
        match (&entry.expect, &outcome) {
            (Expect::Accept, Err(e)) => wrong.push(format!("{}: refused: {e}", entry.name)),
            (Expect::Refuse, Ok(_)) => wrong.push(format!("{}: accepted ({})", entry.name, entry.why)),
            _ => {}
        }
        if let Ok(listing) = &outcome {
            wrong.extend(entry.differences(listing).map(|d| format!("{}: {d}", entry.name)));
        }
        if started.elapsed().as_secs_f64() > 2.0 {
            wrong.push(format!("{}: took {:?}", entry.name, started.elapsed()));
        }
    }
    println!("{set} {formats:?}: {count} entries, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn public_safetensors() {
    check("public", &["safetensors", "safetensors-index"]);
}

#[test]
fn public_gguf() {
    check("public", &["gguf"]);
}

#[test]
fn real_safetensors_and_gguf() {
    check("real", &["safetensors", "gguf"]);
}

#[test]
fn malformed_safetensors() {
    check("malformed", &["safetensors"]);
}

#[test]
fn malformed_gguf() {
    check("malformed", &["gguf"]);
}

#[test]
fn a_split_opens_whole_from_any_part() {
    let directory = common::fixture("gguf/split");
    let names: Vec<_> = (1..=3).map(|n| format!("m-{n:05}-of-00003.gguf")).collect();
    let whole: Vec<_> = names.iter().map(|n| Checkpoint::open(directory.join(n)).unwrap()).collect();
    for checkpoint in &whole {
        assert_eq!(checkpoint.catalog(), whole[0].catalog());
        assert_eq!(checkpoint.catalog().tensors().len(), 5);
        assert_eq!(checkpoint.catalog().files.len(), 3);
    }
    assert_eq!(sha256(&whole[0].tensors().last().unwrap()).unwrap().len(), 64);
}
