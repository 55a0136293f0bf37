//! Checkpoints of several files: which belong together, and what is said when one is not there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::fixture;
use anamnesis::{Checkpoint, ErrorKind, OpenOptions};

/// A directory that is gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("shards-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Copies a fixture here under a name.
    fn copy(&self, from: &str, to: &str) -> PathBuf {
        let path = self.0.join(to);
        fs::copy(fixture(from), &path).unwrap();
        path
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The sharded fixture, whole.
    fn sharded(name: &str) -> Self {
        let scratch = Self::new(name);
        for file in [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            INDEX,
        ] {
            scratch.copy(&format!("safetensors/sharded/{file}"), file);
        }
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const INDEX: &str = "model.safetensors.index.json";

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|t| &*t.name)
        .collect()
}

/// The refusal's kind and text.
fn refusal(path: &Path) -> (&'static str, String) {
    let error = Checkpoint::open(path).unwrap_err();
    (error.kind().name(), error.to_string())
}

#[test]
fn a_directory_is_its_index() {
    let scratch = Scratch::sharded("directory");
    let by_index = Checkpoint::open(scratch.0.join(INDEX)).unwrap();
    let by_directory = Checkpoint::open(&scratch.0).unwrap();
    assert_eq!(by_index.catalog(), by_directory.catalog());
    assert_eq!(by_index.catalog().files().len(), 2);
    assert_eq!(by_index.catalog().tensors().len(), 4);
    assert!(by_index.catalog().metadata().get("total_size").is_some());
    // the numbered shards are enough
    fs::remove_file(scratch.0.join(INDEX)).unwrap();
    assert_eq!(
        names(&Checkpoint::open(&scratch.0).unwrap()),
        names(&by_index)
    );
}

#[test]
fn a_missing_shard_is_named() {
    let scratch = Scratch::sharded("missing");
    let shard = "model-00002-of-00002.safetensors";
    fs::remove_file(scratch.0.join(shard)).unwrap();
    let (kind, text) = refusal(&scratch.0);
    assert_eq!(kind, "missing_part");
    assert!(text.contains(shard) && text.contains("1 of 2"), "{text}");
    fs::remove_file(scratch.0.join(INDEX)).unwrap();
    // without the index, the other shard's name says that it is not all
    let (kind, text) = refusal(&scratch.0);
    assert_eq!(kind, "missing_part");
    assert!(text.contains(shard), "{text}");
    // named by itself it is a file like any other
    let alone = Checkpoint::open(scratch.0.join("model-00001-of-00002.safetensors")).unwrap();
    assert_eq!(alone.catalog().tensors().len(), 2);
}

#[test]
fn an_index_that_lies_is_refused() {
    let scratch = Scratch::sharded("lies");
    let text = fs::read_to_string(scratch.0.join(INDEX)).unwrap();
    let name = "model-00001-of-00002.safetensors";
    for (bad, kind, what) in [
        (
            text.replace(name, "../model-00001-of-00002.safetensors"),
            "malformed",
            "not a plain file name",
        ),
        (
            text.replace(name, "/etc/passwd"),
            "malformed",
            "not a plain file name",
        ),
        (
            text.replace(name, ".."),
            "malformed",
            "not a plain file name",
        ),
        (
            text.replace(name, "model-00002-of-00002.safetensors"),
            "malformed",
            "which does not contain it",
        ),
        (
            text.replace(name, "other.safetensors"),
            "missing_part",
            "other.safetensors",
        ),
        (
            text.replace("weight_map", "weights"),
            "malformed",
            "weight_map",
        ),
        ("{\"weight_map\":{}}".into(), "malformed", "no files"),
        (
            "{\"weight_map\":{\"a\":7}}".into(),
            "malformed",
            "expected a string",
        ),
        (
            "{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}".into(),
            "malformed",
            "occurs twice",
        ),
        ("{".into(), "malformed", "not an index"),
    ] {
        let path = scratch.write(INDEX, &bad);
        let (found, said) = refusal(&path);
        assert_eq!(found, kind, "{said}");
        assert!(said.contains(what), "{said}");
        assert!(said.contains(INDEX), "{said}");
    }
}

#[test]
fn tensors_outside_the_index_are_listed_with_a_warning() {
    let scratch = Scratch::sharded("unlisted");
    let mut index: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(scratch.0.join(INDEX)).unwrap()).unwrap();
    let map = index["weight_map"].as_object_mut().unwrap();
    let gone = map.keys().next().unwrap().clone();
    map.remove(&gone);
    scratch.write(INDEX, &index.to_string());
    let checkpoint = Checkpoint::open(&scratch.0).unwrap();
    assert!(checkpoint.tensor(&gone).is_some());
    assert!(
        checkpoint
            .catalog()
            .warnings()
            .iter()
            .any(|w| w.contains("not in the index"))
    );
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let scratch = Scratch::new("twice");
    for n in 1..=2 {
        scratch.copy(
            "safetensors/many.safetensors",
            &format!("model-0000{n}-of-00002.safetensors"),
        );
    }
    let (kind, text) = refusal(&scratch.0);
    assert_eq!(kind, "malformed");
    assert!(text.contains("two tensors are named"), "{text}");
}

#[test]
fn a_directory_of_several_checkpoints_asks_which() {
    let scratch = Scratch::new("several");
    scratch.copy("gguf/plain_v3.gguf", "a.gguf");
    assert_eq!(
        Checkpoint::open(&scratch.0)
            .unwrap()
            .catalog()
            .tensors()
            .len(),
        8
    );
    scratch.copy("gguf/plain_v2.gguf", "b.gguf");
    let (kind, text) = refusal(&scratch.0);
    assert_eq!(kind, "unsupported");
    assert!(text.contains("a.gguf") && text.contains("b.gguf"), "{text}");
    // the usual name decides, and what was left aside is said
    scratch.copy("safetensors/many.safetensors", "model.safetensors");
    scratch.copy("safetensors/many.safetensors", "adapter.safetensors");
    let checkpoint = Checkpoint::open(&scratch.0).unwrap();
    assert_eq!(checkpoint.catalog().format(), "safetensors");
    assert!(
        checkpoint
            .catalog()
            .warnings()
            .iter()
            .any(|w| w.contains("adapter.safetensors"))
    );
}

#[test]
fn an_empty_directory_says_so() {
    let scratch = Scratch::new("empty");
    let (kind, text) = refusal(&scratch.0);
    assert_eq!(kind, "unknown_format");
    assert!(text.contains("without tensor files"), "{text}");
}

#[test]
fn a_pytorch_index_works_alike() {
    let scratch = Scratch::new("pytorch");
    scratch.copy("pth/state_dict.pth", "pytorch_model-00001-of-00002.bin");
    scratch.copy("pth/tied.pth", "pytorch_model-00002-of-00002.bin");
    let one = Checkpoint::open(fixture("pth/state_dict.pth")).unwrap();
    let two = Checkpoint::open(fixture("pth/tied.pth")).unwrap();
    let map = |checkpoint: &Checkpoint, file: &str| {
        let pairs = names(checkpoint)
            .into_iter()
            .map(|n| format!("\"{n}\":\"{file}\""))
            .collect::<Vec<_>>();
        pairs.join(",")
    };
    let first = map(&one, "pytorch_model-00001-of-00002.bin");
    let second = map(&two, "pytorch_model-00002-of-00002.bin");
    scratch.write(
        "pytorch_model.bin.index.json",
        &format!("{{\"weight_map\":{{{first},{second}}}}}"),
    );
    let whole = Checkpoint::open(&scratch.0).unwrap();
    assert_eq!(names(&whole).len(), names(&one).len() + names(&two).len());
    // storages are numbered through, and bytes come from the right file
    for part in [&one, &two] {
        for tensor in part.tensors() {
            let merged = whole.tensor(&tensor.info().name).unwrap();
            assert_eq!(
                merged.bytes().unwrap(),
                tensor.bytes().unwrap(),
                "{}",
                tensor.info().name
            );
        }
    }
}

#[test]
fn a_split_gguf_names_what_is_missing() {
    let scratch = Scratch::new("split");
    let parts: Vec<PathBuf> = (1..=3)
        .map(|n| {
            scratch.copy(
                &format!("gguf/split/m-{n:05}-of-00003.gguf"),
                &format!("m-{n:05}-of-00003.gguf"),
            )
        })
        .collect();
    assert_eq!(
        Checkpoint::open(&scratch.0)
            .unwrap()
            .catalog()
            .tensors()
            .len(),
        5
    );
    fs::remove_file(&parts[2]).unwrap();
    for part in &parts[..2] {
        let (kind, text) = refusal(part);
        assert_eq!(kind, "missing_part");
        assert!(text.contains("m-00003-of-00003.gguf"), "{text}");
        let alone = OpenOptions::new().single(true).open(part).unwrap();
        assert_eq!(alone.catalog().tensors().len(), 2);
        assert!(
            alone
                .catalog()
                .warnings()
                .iter()
                .any(|w| w.contains("one of the 3 files of a split"))
        );
    }
    // a part under another's name
    fs::copy(&parts[0], &parts[2]).unwrap();
    let (kind, text) = refusal(&parts[0]);
    assert_eq!(kind, "malformed");
    assert!(text.contains("m-00003-of-00003.gguf"), "{text}");
    // a name that does not tell the others
    let renamed = scratch.copy("gguf/split/m-00001-of-00003.gguf", "renamed.gguf");
    let (kind, text) = refusal(&renamed);
    assert_eq!(kind, "missing_part");
    assert!(
        text.contains("00001-of-00003") && text.contains("`OpenOptions::single`"),
        "{text}"
    );
}

#[test]
fn what_is_no_tensor_file_is_called_by_its_name() {
    let scratch = Scratch::new("strangers");
    for (name, bytes, what) in [
        ("a.safetensors", &b""[..], "empty"),
        ("b.gguf", b"<!DOCTYPE html>\n<html><head><title>404", "HTML"),
        (
            "c.bin",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4961\n",
            "Git LFS pointer for 4961",
        ),
        ("d.h5", b"\x89HDF\r\n\x1a\n0000", "HDF5"),
        ("e.npz", b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        ("f.json", b"{\"error\":\"Not Found\"}", "JSON"),
        ("g.txt", b"Invalid username or password.", "text, \"Invalid"),
        ("h", b"\0\x01\x02\x03\xff\xfe", "00 01 02 03"),
        ("i.onnx", b"\x08\x07\x12\x07pytorch", "first bytes"),
    ] {
        let path = scratch.0.join(name);
        fs::write(&path, bytes).unwrap();
        let error = Checkpoint::open(&path).unwrap_err();
        let ErrorKind::UnknownFormat { looks_like } = error.kind() else {
            panic!("{name}: {error}")
        };
        assert!(looks_like.contains(what), "{name}: {looks_like}");
    }
    // a header that is cut off is one, whatever its length's first bytes resemble
    let path = scratch.0.join("k.safetensors");
    fs::write(&path, b"MZ\0\0\0\0\0\0{\"a\":{\"dtype\"").unwrap();
    let (kind, text) = refusal(&path);
    assert_eq!(kind, "malformed", "{text}");
    // a name that promises a format gets that reader's reason
    let path = scratch.write("j.gguf", "GGUX and so on, long enough");
    let (kind, text) = refusal(&path);
    assert_eq!(kind, "malformed");
    assert!(text.contains("magic"), "{text}");
}
