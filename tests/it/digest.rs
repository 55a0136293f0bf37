//! `digest`: the SHA-256 of each tensor's values, for any number of threads; and what ends it.

use anamnesis::digest::TensorDigests;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, Remedy, digest};
use sha2::{Digest, Sha256};

use crate::support::fixture;

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(made: &TensorDigests) -> Vec<Option<String>> {
    let texts = made.tensors.iter();
    texts.map(|digest| digest.map(|d| d.to_string())).collect()
}

#[test]
fn digests_are_those_of_the_values() {
    for name in [
        "safetensors/sharded",
        "gguf/plain_v3.gguf",
        "npy/be_c16.npy",
        "pth/nested.pth",
    ] {
        let checkpoint = Checkpoint::open(fixture(name)).unwrap();
        let expected: Vec<Option<String>> = checkpoint
            .tensors()
            .map(|tensor| Some(sha256(&tensor.bytes().unwrap())))
            .collect();
        assert!(!expected.is_empty(), "{name}");
        for threads in [0, 1, 3] {
            let made = digest(&checkpoint).threads(threads).run().unwrap();
            assert_eq!(texts(&made), expected, "{name}, {threads} threads");
            assert!(made.failure.is_none() && made.without_bytes == 0);
        }
    }
}

#[test]
fn the_filter_chooses_and_progress_ends_at_the_total() {
    let checkpoint = Checkpoint::open(fixture("safetensors/sharded")).unwrap();
    let mut last = None;
    let made = digest(&checkpoint)
        .filter(|name| name == "lm_head.weight")
        .progress(|progress| last = Some(progress))
        .run()
        .unwrap();
    let computed: Vec<usize> = (0..made.tensors.len())
        .filter(|row| made.tensors[*row].is_some())
        .collect();
    let head = checkpoint.catalog().position("lm_head.weight").unwrap();
    assert_eq!(computed, [head]);
    drop(made);
    let last = last.expect("progress is reported at the end");
    assert_eq!((last.done, last.total), (1024, 1024));
}

#[test]
fn a_cancelled_run_is_an_error() {
    let checkpoint = Checkpoint::open(fixture("safetensors/sharded")).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let error = digest(&checkpoint).cancel(&token).run().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
}

#[test]
fn a_damaged_tensor_has_no_digest_and_the_others_have() {
    let mut bytes = std::fs::read(fixture("pth/many.pth")).unwrap();
    let whole = Checkpoint::from_bytes(bytes.clone()).unwrap();
    let infos = whole.catalog().tensors().iter();
    let info = infos
        .max_by_key(|info| info.bytes.len)
        .expect("a tensor with a checksum");
    let at = usize::try_from(info.bytes.start).unwrap();
    bytes[at] ^= 1;
    let damaged = Checkpoint::from_bytes(bytes).unwrap();
    let made = digest(&damaged).threads(2).run().unwrap();
    let error = made.failure.expect("one storage is damaged");
    assert_eq!(error.remedy(), Some(Remedy::ReplaceFile), "{error}");
    let without = made.tensors.iter().filter(|digest| digest.is_none());
    assert_eq!(without.count(), 1);
}
