//! Files that are numbered as one model, beside another model: they are one model in every verb, and a file that they lack is named.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::{command, finish, path_str, run, workspace};

/// A safetensors file with these tensors.
fn safetensors(path: &Path, names: &[&str]) {
    let mut header = serde_json::Map::new();
    for (tensor, name) in names.iter().enumerate() {
        let entry = serde_json::json!({"dtype": "F32", "shape": [2], "data_offsets": [8 * tensor, 8 * tensor + 8]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for element in 0..2 * names.len() {
        bytes.extend((element as f32 + 1.5).to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn fixture(name: &str) -> PathBuf {
    workspace().join("fixtures").join(name)
}

/// The report of a check, and its status.
fn check(directory: &Path) -> (i32, Value) {
    let run = run(&["check", "--json", path_str(directory)]);
    let report: Value = serde_json::from_str(&run.stdout).expect(&run.stdout);
    (run.code, report["models"][0].clone())
}

/// The findings of a rule: the files that they name.
fn found(report: &Value, rule: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let of_rule = findings.filter(|finding| finding["rule"] == rule);
    of_rule
        .map(|finding| {
            let file = finding["file"].as_str();
            file.or(finding["message"].as_str()).unwrap().to_owned()
        })
        .collect()
}

/// A set that lacks a file, beside a model that has nothing to do with it.
#[test]
fn a_file_that_a_set_lacks_is_named_by_every_verb_that_opens_its_directory() {
    for (names, missing, other) in [
        (
            [
                "model-00001-of-00003.safetensors",
                "model-00003-of-00003.safetensors",
            ],
            "model-00002-of-00003.safetensors",
            "unrelated.safetensors",
        ),
        (
            ["a_1_of_3.safetensors", "a_3_of_3.safetensors"],
            "a_2_of_3.safetensors",
            "unrelated.safetensors",
        ),
        (
            ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"],
            "m-00002-of-00003.gguf",
            "unrelated.gguf",
        ),
        // the only one that a name prefers is read, and the set is not
        (
            [
                "model-00001-of-00003.safetensors",
                "model-00003-of-00003.safetensors",
            ],
            "model-00002-of-00003.safetensors",
            "model.safetensors",
        ),
        (
            ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"],
            "m-00002-of-00003.gguf",
            "model.safetensors",
        ),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        let is_gguf = missing.ends_with("gguf");
        for (number, name) in names.iter().enumerate() {
            match is_gguf {
                true => {
                    let part = fixture("gguf/split").join(name);
                    fs::copy(part, directory.join(name)).map(drop).unwrap();
                }
                false => safetensors(&directory.join(name), &[&format!("t{number}.weight")]),
            }
        }
        match other.ends_with("gguf") {
            true => {
                let from = fixture("model/scribe-Q8_0.gguf");
                fs::copy(from, directory.join(other)).map(drop).unwrap();
            }
            false => safetensors(&directory.join(other), &["unrelated.weight"]),
        }
        let (code, report) = check(directory);
        assert_eq!(code, 1, "{names:?} {other}: {report}");
        let found = found(&report, "index-missing-file");
        let is_named = found.len() == 1 && found[0].contains(missing);
        assert!(is_named, "{names:?} {other}: {report}");
        let (dir, out) = (path_str(directory), directory.join("out/"));
        let page = path_str(&directory.join("p.html")).to_owned();
        let template = path_str(&directory.join("t.iot")).to_owned();
        let verbs: [&[&str]; 12] = [
            &["check", "--headers", dir],
            &["check", "--recursive", dir],
            &["inspect", dir],
            &["ls", dir],
            &["plan", dir],
            &["fit", dir],
            &["diff", dir, dir],
            &["load", dir],
            &["report", dir, "-o", &page],
            &["template", "predict", dir, "-o", &template],
            &["remember", dir, "-o", path_str(&out)],
            &["convert", dir, "-o", path_str(&out)],
        ];
        for words in verbs {
            let run = finish(command(words));
            // a page has its own warnings
            let page = fs::read_to_string(&page).unwrap_or_default();
            let text = format!("{}{}{page}", run.stdout, run.stderr);
            assert!(text.contains(missing), "{words:?} {other}: {text}");
        }
        let warm = run(&["warm", dir]);
        // the set is no part of the model that is read alone
        let is_read = other == "model.safetensors";
        assert_eq!(warm.code, i32::from(!is_read), "{other}: {}", warm.stderr);
        assert!(warm.stderr.contains(missing), "{}", warm.stderr);
    }
}

#[test]
fn a_tensor_in_two_files_of_a_set_beside_another_model_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    safetensors(
        &directory.join("model-00001-of-00003.safetensors"),
        &["twice", "once"],
    );
    safetensors(
        &directory.join("model-00003-of-00003.safetensors"),
        &["twice"],
    );
    safetensors(&directory.join("unrelated.safetensors"), &["twice"]);
    let (code, report) = check(directory);
    assert_eq!(code, 1, "{report}");
    assert_eq!(
        found(&report, "index-missing-file"),
        ["model-00002-of-00003.safetensors"]
    );
    assert_eq!(
        found(&report, "duplicate-name"),
        ["model-00003-of-00003.safetensors"]
    );
}

/// A split beside another model is one model, of which each file is read once.
#[test]
fn a_split_beside_another_model_is_counted_once() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let parts = [1, 2, 3].map(|n| format!("m-0000{n}-of-00003.gguf"));
    for part in &parts {
        fs::copy(fixture("gguf/split").join(part), directory.join(part)).unwrap();
    }
    safetensors(&directory.join("second.safetensors"), &["a"]);
    safetensors(&directory.join("third.safetensors"), &["b"]);
    fs::copy(
        fixture("model/scribe-Q8_0.gguf"),
        directory.join("other.gguf"),
    )
    .unwrap();
    let (code, report) = check(directory);
    assert_eq!(code, 0, "{report}");
    // 5 of the split, 20 of the other GGUF, and one each of the two files
    assert_eq!(report["checked"]["of_tensors"], 27, "{report}");
    assert_eq!(report["checked"]["files"], 6, "{report}");
    assert_eq!(report["models"].as_array().unwrap().len(), 4, "{report}");
    fs::remove_file(directory.join("second.safetensors")).unwrap();
    fs::remove_file(directory.join("third.safetensors")).unwrap();
    let dir = path_str(directory);
    for words in [
        &["inspect", dir][..],
        &["plan", dir],
        &["fit", dir],
        &["diff", dir, dir],
    ] {
        let run = run(words);
        let says = "contains 2 checkpoints";
        assert!(run.stderr.contains(says), "{words:?}: {}", run.stderr);
    }
    let listed = run(&["ls", "--json", dir]);
    assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stdout);
    let warmed = run(&["warm", "--json", dir]);
    let warmed: Value = serde_json::from_str(&warmed.stdout).unwrap();
    assert_eq!(warmed["warm"]["models"], 2, "{warmed}");
}

/// Names of ranks say nothing of their number: a gap among them is a file that is missing.
#[test]
fn a_gap_among_ranks_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    for rank in [0, 1, 2, 4, 5, 6, 7] {
        let name = format!("rank{rank}.safetensors");
        safetensors(&directory.join(name), &["w.weight"]);
    }
    let dir = path_str(directory);
    let words: [&[&str]; 6] = [
        &["check", dir],
        &["ls", dir],
        &["plan", dir],
        &["inspect", dir],
        &["load", dir],
        &["convert", dir, "-o", "/nonexistent/out/"],
    ];
    for words in words {
        let found = run(words);
        let text = found.stdout + &found.stderr;
        assert_ne!(found.code, 0, "{words:?}: {text}");
        assert!(text.contains("rank3.safetensors"), "{words:?}: {text}");
    }
    safetensors(&directory.join("rank3.safetensors"), &["w.weight"]);
    let (code, report) = check(directory);
    assert_eq!(
        found(&report, "index-missing-file").len(),
        0,
        "{code} {report}"
    );
}
