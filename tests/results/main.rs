//! The figures in the documents equal the committed results of the benchmarks. A generated block (from `<!-- results: … -->` to
//! `<!-- /results -->`, or with `pagecache`) must be what the benchmark's renderer makes of the JSON, and that JSON must name date,
//! commit and machine. Measured figures outside of blocks are only allowed where `BY_HAND` lists the document with a reason.
//! `UPDATE=1 cargo test --test results` renders the blocks of results again.
#![allow(clippy::duplicate_mod)] // the two programs that measure share a file, and each is compiled into this test

mod pagecache;
mod rendered;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use text::{figures, split};

/// Document, heading (`None` for the whole document), and why its figures are written by hand.
static BY_HAND: &[(&str, Option<&str>, &str)] = &[
    (
        "docs/edit.md",
        Some("How a file gets its new header"),
        "printed by tests/it/edit.rs, which bounds the bytes that are written",
    ),
    (
        "docs/perf-experiments.md",
        None,
        "a log: the figures of each entry belong to its own date and commit",
    ),
    (
        "docs/untrusted.md",
        Some("Charges, and their tests"),
        "printed by tests/own_process/charged_memory.rs, which asserts the bounds",
    ),
    (
        "docs/untrusted.md",
        Some("The command on hostile inputs"),
        "printed by tests/hostile/costs.py, which asserts the bounds",
    ),
    (
        "docs/untrusted.md",
        Some("Proved"),
        "printed by .ci/prove and the fuzz targets, with date and commit",
    ),
    (
        "docs/page-cache.md",
        Some("`warm` beside the command"),
        "a run of the evaluator with the variant Warm, with date, commit and machine",
    ),
    (
        "docs/command.md",
        Some("ppc run"),
        "defaults of options, not measured",
    ),
];

#[test]
fn numbers_of_generated_blocks_are_in_their_results() {
    let (mut wrong, mut blocks) = (Vec::new(), 0);
    for path in documents() {
        let mut text = fs::read_to_string(root().join(&path)).unwrap();
        for block in split(&text).unwrap_or_else(|e| panic!("{path}: {e}")).1 {
            let mismatches = match block.kind {
                "pagecache" => pagecache::check(&block),
                _ if std::env::var_os("UPDATE").is_some() => {
                    let begin = format!("<!-- results: {} -->", block.name);
                    let rendered = rendered::block(&block.name).unwrap();
                    text = text.replace(
                        &format!("{begin}{}<!-- /results -->", block.text),
                        &format!("{begin}\n{rendered}<!-- /results -->"),
                    );
                    fs::write(root().join(&path), &text).unwrap();
                    Vec::new()
                }
                _ => rendered::check(&block),
            };
            wrong.extend(
                mismatches
                    .into_iter()
                    .map(|what| format!("{path}: {}: {what}", block.name)),
            );
            blocks += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "not in the results:\n{}",
        wrong.join("\n")
    );
    assert!(blocks > 0, "no document has a generated block");
}

#[test]
fn figures_written_by_hand_are_listed() {
    let mut used = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for (heading, line) in figures(&split(&text).unwrap().0) {
            let row = BY_HAND.iter().position(|(document, under, _)| {
                *document == path && under.is_none_or(|under| under == heading)
            });
            let row = row.unwrap_or_else(|| {
                panic!(
                    "{path}: {heading}: {line:?} has a measured figure outside of a generated block"
                )
            });
            used.push(row);
        }
    }
    for (i, (path, heading, _)) in BY_HAND.iter().enumerate() {
        assert!(
            used.contains(&i),
            "{path}: {heading:?} has no figures written by hand: remove it from BY_HAND"
        );
    }
}

#[test]
fn committed_results_name_date_commit_and_machine() {
    let folder = root().join("benches/results");
    let Ok(files) = fs::read_dir(&folder) else {
        println!("SKIPPED: no results are committed");
        return;
    };
    for path in files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
    {
        let results: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(
            missing_provenance(&results["run"]),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
    let evaluations = results("pagecache/results.json").unwrap_or_default();
    let runs = evaluations
        .as_array()
        .into_iter()
        .flatten()
        .map(|evaluation| &evaluation["run"])
        .filter(|run| !run.is_null());
    let overhead = results("pagecache/overhead.json").map(|results| results["run"].clone());
    for run in runs.chain(&overhead) {
        assert_eq!(missing_provenance(run), Vec::<String>::new());
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of results below `benches`; `None` if it does not exist.
fn results(name: &str) -> Option<Value> {
    let bytes = fs::read(root().join("benches").join(name)).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Paths of README.md and docs/*.md, relative to the root.
fn documents() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| PathBuf::from("docs").join(entry.unwrap().file_name()));
    let all = docs.filter(|path| path.extension().is_some_and(|e| e == "md"));
    all.map(|path| path.to_str().unwrap().replace('\\', "/"))
        .chain(["README.md".to_owned()])
        .collect()
}

/// The fields of a run's provenance that are missing.
fn missing_provenance(run: &Value) -> Vec<String> {
    let required = ["date", "commit", "cpu", "kernel", "rustc"];
    let missing = required
        .iter()
        .filter(|key| run[**key].as_str().is_none_or(str::is_empty));
    let mut missing: Vec<String> = missing
        .map(|key| format!("the results have no {key}"))
        .collect();
    if run["dirty"] != Value::Bool(false) {
        missing.push("the results were measured in a tree with uncommitted changes".to_owned());
    }
    missing
}
