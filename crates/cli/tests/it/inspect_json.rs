//! The documents of `inspect --json`, validated against `docs/inspect.schema.json` for every fixture, and what options and
//! errors change in them.

use serde_json::Value;

use crate::process::{run, stdout_of, workspace};
use crate::schema;

/// Parses and validates a document.
fn document(text: &str) -> Value {
    schema::document(text, "inspect.schema.json")
}

#[test]
fn the_document_of_every_fixture_is_valid() {
    let pattern = workspace().join("fixtures/**/*.*");
    let paths: Vec<String> = glob::glob(pattern.to_str().unwrap())
        .unwrap()
        .map(|path| path.unwrap())
        .filter(|path| path.is_file())
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    assert!(paths.len() > 100);
    for batch in paths.chunks(50) {
        let args: Vec<&str> = ["inspect", "--json", "--hash"]
            .into_iter()
            .chain(batch.iter().map(String::as_str))
            .collect();
        let run = run(&args);
        let document = document(&run.stdout);
        let opened = document["checkpoints"].as_array().unwrap().len();
        let failed = document["errors"].as_array().map_or(0, Vec::len);
        assert!(opened <= batch.len() && opened + failed >= batch.len());
        assert_eq!(run.code, i32::from(failed > 0));
    }
}

#[test]
fn hashes_of_distributed_checkpoints_are_those_of_torch() {
    let text = std::fs::read_to_string(workspace().join("fixtures/dcp/expected.json")).unwrap();
    let folders: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(folders.len(), 3);
    for (folder, expected) in folders {
        let path = format!("fixtures/dcp/{folder}");
        let shown = document(&stdout_of(&["inspect", "--json", "--hash", &path]));
        let tensors = shown["checkpoints"][0]["tensors"].as_array().unwrap();
        assert_eq!(tensors.len(), expected.as_object().unwrap().len());
        for tensor in tensors {
            let row = &expected[tensor["name"].as_str().unwrap()];
            assert_eq!(tensor["sha256"], row["sha256"], "{folder}: {tensor}");
        }
    }
}

#[test]
fn errors_are_listed_in_the_document() {
    let one = run(&["inspect", "--json", "missing.gguf"]);
    assert_eq!(one.code, 1);
    let one = document(&one.stdout);
    assert_eq!(one["checkpoints"], Value::Array(vec![]));
    assert_eq!(
        (&one["error"]["kind"], &one["error"]["path"]),
        (&"io".into(), &"missing.gguf".into())
    );
    assert_eq!(one["error"], one["errors"][0]);

    let both = run(&[
        "inspect",
        "--json",
        "fixtures/gguf/plain_v3.gguf",
        "missing.gguf",
        "no*match",
    ]);
    assert_eq!(both.code, 1);
    let both = document(&both.stdout);
    assert_eq!(both["checkpoints"][0]["format"], "gguf");
    assert_eq!(both["errors"][1]["kind"], "no_match");
}

#[test]
fn filter_sort_and_summary_select_tensors_of_the_document() {
    let path = "fixtures/gguf/plain_v3.gguf";
    let filtered = document(&stdout_of(&[
        "inspect", "--json", "--filter", "*16", "--sort", "size", path,
    ]));
    assert_eq!(filtered["filter"], Value::from(vec!["*16"]));
    assert_eq!(filtered["checkpoints"][0]["totals"]["tensors"], 3);
    assert_eq!(filtered["checkpoints"][0]["tensors"][0]["name"], "t.bf16");
    let short = document(&stdout_of(&["inspect", "--json", "--summary", path]));
    assert_eq!(short["checkpoints"][0]["tensors"], Value::Array(vec![]));
    assert_eq!(short["checkpoints"][0]["totals"]["tensors"], 8);
    let directory = document(&stdout_of(&[
        "inspect",
        "--json",
        "fixtures/safetensors/sharded",
    ]));
    assert_eq!(
        directory["checkpoints"][0]["path"],
        "fixtures/safetensors/sharded"
    );
    assert_eq!(
        directory["checkpoints"][0]["files"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}
