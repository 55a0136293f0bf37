//! The shared corpus, where it is installed: safetensors and GGUF files are listed and read as their manifests say, and every
//! malformed file of any format is listed or refused in time. `numpy.rs` and `pth.rs` test the valid files of the other formats.

use crate::support;
use crate::support::corpus::corpus_entries;
use crate::support::manifest_exceptions::EXCEPTIONS;
use crate::support::valid_files::check_corpus_set;
use crate::support::{malformed_files, sha256};
use anamnesis::Checkpoint;

#[test]
fn public_safetensors_equal_their_manifest() {
    check_corpus_set("public", &["safetensors", "safetensors-index"], 660);
}

#[test]
fn public_gguf_equals_its_manifest() {
    check_corpus_set("public", &["gguf"], 120);
}

#[test]
fn real_safetensors_and_gguf_equal_their_manifest() {
    check_corpus_set("real", &["safetensors", "gguf"], 80);
}

#[test]
fn malformed_files_are_listed_or_refused_in_time() {
    let wrong = malformed_files::violations().unwrap_or_default();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_exception_matches_a_file() {
    let formats = [
        "safetensors",
        "safetensors-index",
        "gguf",
        "npy",
        "npz",
        "pth",
    ];
    let (Some(public), Some(real)) = (
        corpus_entries("public", &formats),
        corpus_entries("real", &formats),
    ) else {
        return;
    };
    for exception in EXCEPTIONS {
        assert!(
            public
                .iter()
                .chain(&real)
                .any(|e| e.name.contains(exception.path_contains)),
            "{} ({})",
            exception.path_contains,
            exception.reason
        );
    }
}

#[test]
fn a_split_gguf_opens_whole_from_any_file() {
    let directory = support::fixture("gguf/split");
    let names: Vec<_> = (1..=3).map(|n| format!("m-{n:05}-of-00003.gguf")).collect();
    let whole: Vec<_> = names
        .iter()
        .map(|n| Checkpoint::open(directory.join(n)).unwrap())
        .collect();
    for checkpoint in &whole {
        assert_eq!(checkpoint.catalog(), whole[0].catalog());
        assert_eq!(checkpoint.catalog().tensors().len(), 5);
        assert_eq!(checkpoint.catalog().files().len(), 3);
    }
    assert_eq!(
        sha256(&whole[0].tensors().last().unwrap()).unwrap().len(),
        64
    );
}
