//! `anamnesis remember --part`: processes that make one directory together, and what has no parts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{path_str, run, stdout_of};

const SOURCE: &str = "fixtures/model/scribe-Q8_0.gguf";
const SHARDS: [&str; 2] = ["--shard-size", "60KB"];

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn part(out: &Path, part: &str, more: &[&str]) -> crate::process::Run {
    let arguments = ["remember", SOURCE, "-o", path_str(out), "--part", part];
    run(&[&arguments[..], &SHARDS, more].concat())
}

#[test]
fn parts_at_once_make_what_one_run_makes() {
    let dir = tempfile::tempdir().unwrap();
    let (one, many) = (dir.path().join("one"), dir.path().join("many"));
    let alone = ["remember", SOURCE, "-o", path_str(&one)];
    stdout_of(&[&alone[..], &SHARDS].concat());
    let runs: Vec<_> = std::thread::scope(|scope| {
        let started = (1..=4).map(|number| {
            let many = &many;
            scope.spawn(move || part(many, &format!("{number}/4"), &[]))
        });
        let started: Vec<_> = started.collect();
        started.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for run in &runs {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    assert!(runs.iter().any(|run| run.stdout.contains("complete, ")));
    assert_eq!(contents(&many), contents(&one));
    // a part that is run again has nothing to do
    let again = part(&many, "2/4", &["--json"]);
    let document: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(document["made"], Value::Array(Vec::new()));
    assert_eq!(
        (&document["missing"], &document["part"]["number"]),
        (&0.into(), &2.into())
    );
    assert_eq!(
        document["files"].as_array().unwrap().len() + 5,
        contents(&one).len()
    );
}

#[test]
fn readers_find_no_checkpoint_before_the_last_part() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let first = part(&out, "1/2", &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stdout.contains(" missing"), "{}", first.stdout);
    assert!(!out.join("model.safetensors.index.json").exists());
    // files of another number belong to another conversion
    let other = part(&out, "2/2", &["--dtype", "f32"]);
    assert_eq!(other.code, 1, "{}", other.stderr);
    assert!(!out.join("model.safetensors.index.json").exists());
    let second = part(&out, "2/2", &[]);
    assert!(second.stdout.contains("complete, "), "{}", second.stdout);
    assert!(out.join("model.safetensors.index.json").exists());
}

#[test]
fn what_has_no_parts_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one.safetensors");
    let one = run(&["remember", SOURCE, "-o", path_str(&file), "--part", "1/2"]);
    assert_eq!(one.code, 2, "{}", one.stderr);
    assert!(
        one.stderr.contains("one file has no parts"),
        "{}",
        one.stderr
    );
    for wrong in ["0/2", "3/2", "1", "a/b", "1/0"] {
        let refused = part(&dir.path().join("out"), wrong, &[]);
        assert_eq!(refused.code, 2, "{wrong}: {}", refused.stderr);
    }
    assert_eq!(contents(dir.path()).len(), 0);
}
