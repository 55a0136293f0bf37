//! Models of several files and formats in a list: each is a line, of all of its files.

use std::fs;
use std::path::Path;

use crate::process::{path_str, run, safetensors, workspace};

/// The lines of a list: paths, formats and numbers of files.
fn listed(path: &Path) -> Vec<(String, String, u64)> {
    let run = run(&["ls", "--json", path_str(path)]);
    let lines = run.stdout.lines();
    let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .map(|line| {
            assert!(line["error"].is_null(), "{line}");
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            let path = text("path").replace(path_str(path), "");
            (path, text("format"), line["files"].as_u64().unwrap())
        })
        .collect()
}

/// Shards in folders below the index that names them are its model's, and other files there are models of their own.
#[test]
fn shards_in_folders_are_of_the_model_of_their_index() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    let shards = ["sub/x.safetensors", "sub/deep/x-00002-of-00002.safetensors"];
    let mut places = serde_json::Map::new();
    for (n, shard) in shards.iter().enumerate() {
        let name = format!("t.{n}");
        safetensors(&root.join(shard), "", &[(&name, &[2])]);
        places.insert(name, (*shard).into());
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": places}).to_string();
    fs::write(root.join("model.safetensors.index.json"), index).unwrap();
    let own = (
        "/model.safetensors.index.json".to_owned(),
        "safetensors".to_owned(),
        2,
    );
    assert_eq!(listed(root), std::slice::from_ref(&own));
    safetensors(&root.join("sub/other.safetensors"), "", &[("o", &[2])]);
    let other = (
        "/sub/other.safetensors".to_owned(),
        "safetensors".to_owned(),
        1,
    );
    assert_eq!(listed(root), [own, other]);
}

/// A repository of the hub's cache has a line for each format of its model, as a directory has.
#[test]
fn formats_of_a_repository_are_a_line_each() {
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("models--org--name");
    let snapshot = repository.join("snapshots/aaa");
    fs::create_dir_all(snapshot.join("onnx")).unwrap();
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "aaa").unwrap();
    fs::write(snapshot.join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    fs::write(snapshot.join("onnx/model.onnx"), "onnx").unwrap();
    safetensors(&snapshot.join("model.safetensors"), "", &[("a", &[2])]);
    let of = |path: &str, format: &str| (path.to_owned(), format.to_owned(), 1);
    let first = of("/models--org--name", "safetensors");
    assert_eq!(listed(scratch.path()), std::slice::from_ref(&first));
    let gguf = workspace().join("fixtures/gguf/plain_v3.gguf");
    fs::copy(gguf, snapshot.join("model-q8_0.gguf")).unwrap();
    let pth = workspace().join("fixtures/model/tied_head/pytorch_model.bin");
    fs::copy(pth, snapshot.join("pytorch_model.bin")).unwrap();
    let below = "/models--org--name/snapshots/aaa";
    let found = listed(scratch.path());
    assert_eq!(found[0], first);
    assert_eq!(found.len(), 3);
    assert_eq!(found[1], of(&format!("{below}/model-q8_0.gguf"), "gguf"));
    // as the same files are listed in a directory of another kind
    let plain = listed(&snapshot);
    assert_eq!(found.len(), plain.len());
    assert!(
        found.iter().zip(&plain).all(|(a, b)| a.1 == b.1),
        "{found:?} {plain:?}"
    );
}
