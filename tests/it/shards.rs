//! Checkpoints of several files: which files belong together, and the error when one is missing or does not match the others.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions, Remedy};

const INDEX: &str = "model.safetensors.index.json";

/// Copies a fixture to this name.
fn copy_fixture(scratch: &ScratchDir, from: &str, to: &str) -> PathBuf {
    let path = scratch.path(to);
    fs::copy(fixture(from), &path).unwrap();
    path
}

fn write(scratch: &ScratchDir, name: &str, text: &str) -> PathBuf {
    let path = scratch.path(name);
    fs::write(&path, text).unwrap();
    path
}

/// A directory with the sharded fixture: two shards and their index.
fn sharded_fixture(name: &str) -> ScratchDir {
    let scratch = ScratchDir::new(&format!("shards-{name}"));
    for file in [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        INDEX,
    ] {
        copy_fixture(&scratch, &format!("safetensors/sharded/{file}"), file);
    }
    scratch
}

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|t| &*t.name)
        .collect()
}

/// Kind and text of the error that opening returns.
fn refusal(path: &Path) -> (&'static str, String) {
    let error = Checkpoint::open(path).unwrap_err();
    (error.kind().name(), error.to_string())
}

#[test]
fn a_directory_and_its_index_open_the_same_checkpoint() {
    let scratch = sharded_fixture("directory");
    let by_index = Checkpoint::open(scratch.path(INDEX)).unwrap();
    let by_directory = Checkpoint::open(scratch.dir()).unwrap();
    assert_eq!(by_index.catalog(), by_directory.catalog());
    assert_eq!(by_index.catalog().files().len(), 2);
    assert_eq!(by_index.catalog().tensors().len(), 4);
    assert!(by_index.catalog().metadata().get("total_size").is_some());
    // without an index, the numbers in the names of the shards decide
    fs::remove_file(scratch.path(INDEX)).unwrap();
    assert_eq!(
        names(&Checkpoint::open(scratch.dir()).unwrap()),
        names(&by_index)
    );
}

#[test]
fn a_missing_shard_is_named() {
    let scratch = sharded_fixture("missing");
    let shard = "model-00002-of-00002.safetensors";
    fs::remove_file(scratch.path(shard)).unwrap();
    let (kind, text) = refusal(scratch.dir());
    assert_eq!(kind, "missing_part");
    assert!(text.contains(shard) && text.contains("1 of 2"), "{text}");
    fs::remove_file(scratch.path(INDEX)).unwrap();
    // without an index, the name of the remaining shard gives the number of shards
    let (kind, text) = refusal(scratch.dir());
    assert_eq!(kind, "missing_part");
    assert!(text.contains(shard), "{text}");
    // the path of one shard opens that file only
    let alone = Checkpoint::open(scratch.path("model-00001-of-00002.safetensors")).unwrap();
    assert_eq!(alone.catalog().tensors().len(), 2);
}

#[test]
fn an_invalid_index_is_refused() {
    let scratch = sharded_fixture("invalid");
    let text = fs::read_to_string(scratch.path(INDEX)).unwrap();
    let name = "model-00001-of-00002.safetensors";
    for (index, kind, message) in [
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
        let path = write(&scratch, INDEX, &index);
        let (found, text) = refusal(&path);
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(message), "{text}");
        assert!(text.contains(INDEX), "{text}");
    }
}

#[test]
fn tensors_outside_the_index_are_listed_with_a_warning() {
    let scratch = sharded_fixture("unlisted");
    let mut index: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(scratch.path(INDEX)).unwrap()).unwrap();
    let map = index["weight_map"].as_object_mut().unwrap();
    let removed = map.keys().next().unwrap().clone();
    map.remove(&removed);
    write(&scratch, INDEX, &index.to_string());
    let checkpoint = Checkpoint::open(scratch.dir()).unwrap();
    assert!(checkpoint.tensor(&removed).is_some());
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
    let scratch = ScratchDir::new("shards-twice");
    for n in 1..=2 {
        copy_fixture(
            &scratch,
            "safetensors/many.safetensors",
            &format!("model-0000{n}-of-00002.safetensors"),
        );
    }
    let (kind, text) = refusal(scratch.dir());
    assert_eq!(kind, "malformed");
    assert!(text.contains("two tensors are named"), "{text}");
}

#[test]
fn a_directory_of_several_checkpoints_is_ambiguous() {
    let scratch = ScratchDir::new("shards-several");
    copy_fixture(&scratch, "gguf/plain_v3.gguf", "a.gguf");
    assert_eq!(
        Checkpoint::open(scratch.dir())
            .unwrap()
            .catalog()
            .tensors()
            .len(),
        8
    );
    copy_fixture(&scratch, "gguf/plain_v2.gguf", "b.gguf");
    let (kind, text) = refusal(scratch.dir());
    assert_eq!(kind, "unsupported");
    assert!(text.contains("a.gguf") && text.contains("b.gguf"), "{text}");
    // `model.safetensors` is preferred, with a warning that names the others
    copy_fixture(
        &scratch,
        "safetensors/many.safetensors",
        "model.safetensors",
    );
    copy_fixture(
        &scratch,
        "safetensors/many.safetensors",
        "adapter.safetensors",
    );
    let checkpoint = Checkpoint::open(scratch.dir()).unwrap();
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
fn an_empty_directory_is_refused() {
    let scratch = ScratchDir::new("shards-empty");
    let (kind, text) = refusal(scratch.dir());
    assert_eq!(kind, "unknown_format");
    assert!(text.contains("without tensor files"), "{text}");
}

#[test]
fn a_pytorch_index_is_opened() {
    let scratch = ScratchDir::new("shards-pytorch");
    copy_fixture(
        &scratch,
        "pth/state_dict.pth",
        "pytorch_model-00001-of-00002.bin",
    );
    copy_fixture(&scratch, "pth/tied.pth", "pytorch_model-00002-of-00002.bin");
    let one = Checkpoint::open(fixture("pth/state_dict.pth")).unwrap();
    let two = Checkpoint::open(fixture("pth/tied.pth")).unwrap();
    let index_entries = |checkpoint: &Checkpoint, file: &str| {
        let pairs = names(checkpoint)
            .into_iter()
            .map(|n| format!("\"{n}\":\"{file}\""))
            .collect::<Vec<_>>();
        pairs.join(",")
    };
    let first = index_entries(&one, "pytorch_model-00001-of-00002.bin");
    let second = index_entries(&two, "pytorch_model-00002-of-00002.bin");
    write(
        &scratch,
        "pytorch_model.bin.index.json",
        &format!("{{\"weight_map\":{{{first},{second}}}}}"),
    );
    let whole = Checkpoint::open(scratch.dir()).unwrap();
    assert_eq!(names(&whole).len(), names(&one).len() + names(&two).len());
    // storages of both files are numbered consecutively, and each tensor is read from its file
    for shard in [&one, &two] {
        for tensor in shard.tensors() {
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
fn a_missing_file_of_a_split_gguf_is_named() {
    let scratch = ScratchDir::new("shards-split");
    let splits: Vec<PathBuf> = (1..=3)
        .map(|n| {
            copy_fixture(
                &scratch,
                &format!("gguf/split/m-{n:05}-of-00003.gguf"),
                &format!("m-{n:05}-of-00003.gguf"),
            )
        })
        .collect();
    assert_eq!(
        Checkpoint::open(scratch.dir())
            .unwrap()
            .catalog()
            .tensors()
            .len(),
        5
    );
    fs::remove_file(&splits[2]).unwrap();
    for split in &splits[..2] {
        let (kind, text) = refusal(split);
        assert_eq!(kind, "missing_part");
        assert!(text.contains("m-00003-of-00003.gguf"), "{text}");
        let alone = OpenOptions::new().single(true).open(split).unwrap();
        assert_eq!(alone.catalog().tensors().len(), 2);
        assert!(
            alone
                .catalog()
                .warnings()
                .iter()
                .any(|w| w.contains("one of the 3 files of a split"))
        );
    }
    // the first file under the name of the third
    fs::copy(&splits[0], &splits[2]).unwrap();
    let (kind, text) = refusal(&splits[0]);
    assert_eq!(kind, "malformed");
    assert!(text.contains("m-00003-of-00003.gguf"), "{text}");
    // a name without the numbers of the split
    let renamed = copy_fixture(&scratch, "gguf/split/m-00001-of-00003.gguf", "renamed.gguf");
    let error = Checkpoint::open(&renamed).unwrap_err();
    assert_eq!(error.kind().name(), "missing_part");
    assert!(error.to_string().contains("00001-of-00003"), "{error}");
    assert_eq!(error.remedy(), Some(Remedy::RenameOrOpenAlone));
}

/// The token is checked for each file, and changes nothing while it is not cancelled.
#[test]
fn opening_of_several_files_is_cancelled() {
    let token = CancelToken::new();
    let paths = [
        "safetensors/sharded",
        "gguf/split/m-00001-of-00003.gguf",
        "dcp/four",
        "npy/v1.npy",
    ];
    let options = OpenOptions::new().cancel(&token);
    for path in paths {
        options.open(fixture(path)).expect(path);
    }
    token.cancel();
    for path in paths {
        let error = options.open(fixture(path)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{path}: {error}"
        );
    }
}
