//! Figures in the documents come from committed results: every number of a block between `<!-- results: … -->` and
//! `<!-- /results -->`, or `<!-- pagecache: … -->` and its end, is found in the JSON that it was rendered from, which says
//! when, of which commit and on which machine it was measured. Figures elsewhere are listed here, with a reason; the list
//! shrinks.

mod pagecache;
mod sections;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use text::{figures, split};

/// Document, heading (or all of it), why its figures may stand there by hand.
static BY_HAND: &[(&str, Option<&str>, &str)] = &[(
    "docs/perf-experiments.md",
    None,
    "a log: each entry's figures are of its own day and commit",
)];

#[test]
fn every_number_of_a_block_is_in_its_results() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for block in split(&text).unwrap_or_else(|e| panic!("{path}: {e}")).1 {
            let found = match block.kind {
                "pagecache" => pagecache::check(&block),
                _ => sections::check_block(&block),
            };
            wrong.extend(
                found
                    .into_iter()
                    .map(|what| format!("{path}: {}: {what}", block.name)),
            );
            seen += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "not in the results:\n{}",
        wrong.join("\n")
    );
    assert!(seen > 0, "no document has a block");
}

#[test]
fn figures_by_hand_are_on_the_list_and_the_list_is_no_longer() {
    let mut seen = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for (heading, line) in figures(&split(&text).unwrap().0) {
            let listed = BY_HAND
                .iter()
                .position(|(of, at, _)| *of == path && at.is_none_or(|at| at == heading));
            let listed = listed.unwrap_or_else(|| {
                panic!(
                    "{path}: {heading}: {line:?} has a measured figure that comes from no results; render it from them"
                )
            });
            seen.push(listed);
        }
    }
    for (i, (path, heading, _)) in BY_HAND.iter().enumerate() {
        assert!(
            seen.contains(&i),
            "{path}: {heading:?} has no figures by hand any more: take it off the list"
        );
    }
}

#[test]
fn committed_results_say_when_and_where() {
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
            origin(&results["run"]),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
    let evaluations = results("pagecache/results.json").unwrap_or_default();
    let noted = evaluations
        .as_array()
        .into_iter()
        .flatten()
        .map(|of| &of["run"])
        .filter(|run| !run.is_null());
    let overhead = results("pagecache/overhead.json").map(|results| results["run"].clone());
    for run in noted.chain(&overhead) {
        assert_eq!(origin(run), Vec::<String>::new());
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of results, from `benches`; nothing if it is not there.
fn results(name: &str) -> Option<Value> {
    let bytes = fs::read(root().join("benches").join(name)).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// README.md and docs/*.md, from the root.
fn documents() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| PathBuf::from("docs").join(entry.unwrap().file_name()));
    let all = docs.filter(|path| path.extension().is_some_and(|e| e == "md"));
    all.map(|path| path.to_str().unwrap().replace('\\', "/"))
        .chain(["README.md".to_owned()])
        .collect()
}

/// What results do not say of when and where they were measured.
fn origin(run: &Value) -> Vec<String> {
    let wanted = ["date", "commit", "cpu", "kernel", "rustc"];
    let missing = wanted
        .iter()
        .filter(|key| run[**key].as_str().is_none_or(str::is_empty));
    let mut missing: Vec<String> = missing
        .map(|key| format!("no {key} in the results"))
        .collect();
    if run["dirty"] != Value::Bool(false) {
        missing.push("the results are of a tree with changes".to_owned());
    }
    missing
}
