//! The renderer of `pagecache report`, compiled into this test: a block must be what it makes of the committed runs.
#![allow(dead_code, missing_docs, unreachable_pub)] // the program that measures uses more of it

#[path = "../../benches/pagecache/src/report.rs"]
mod report;
#[path = "../../benches/pagecache/src/results.rs"]
mod runs;
#[path = "../../benches/pagecache/src/scenario.rs"]
mod scenario;

use runs::{Evaluation, Overheads};
use serde_json::{Value, from_value, json};

use crate::rendered::differences;
use crate::text::Block;
use crate::{missing_provenance, results as committed};

// `report` names the module as the program does
use runs as results;

type Failure = Box<dyn std::error::Error>;

pub(crate) fn check(block: &Block) -> Vec<String> {
    let all = committed("pagecache/results.json").unwrap_or(json!([]));
    let overheads = committed("pagecache/overhead.json");
    let evaluations = all
        .as_array()
        .unwrap()
        .iter()
        .map(|evaluation| &evaluation["run"]);
    // the first evaluations did not store it
    let runs = evaluations.filter(|run| !run.is_null());
    let mut wrong: Vec<String> = runs.flat_map(missing_provenance).collect();
    match rendered(&block.name, all, overheads) {
        Err(error) => wrong.push(error),
        Ok(None) if block.is_empty() => {}
        Ok(None) => wrong.push("the block has figures, and there are no results".to_owned()),
        Ok(Some(table)) => wrong.extend(differences(&block.text, &table)),
    }
    wrong
}

fn rendered(name: &str, all: Value, overheads: Option<Value>) -> Result<Option<String>, String> {
    let all: Vec<Evaluation> = from_value(all).map_err(|e| e.to_string())?;
    let overheads: Option<Overheads> = overheads
        .map(from_value)
        .transpose()
        .map_err(|e| e.to_string())?;
    report::block(name, &all, overheads.as_ref())
}

fn provenance() -> Value {
    json!({"date": "2026-11-21T01:02:03Z", "commit": "abc", "dirty": false, "cpu": "X 9", "kernel": "L", "rustc": "r",
        "cores": 2, "memory_gib": 4.0, "python": {}, "rounds": 3})
}

#[test]
fn a_figure_that_differs_from_the_runs_is_reported() {
    let run = |variant: &str, load: f64, covered: Option<f64>| {
        json!({"scenario": "sufficient", "loader": "mmap", "variant": variant, "round": 0, "load": load, "start": 2.0 * load,
            "ready": 0.0, "device_bytes": 3_000_000_000_u64, "peak_memory": 1_000_000_000, "major_faults": 0, "covered": covered})
    };
    let native = [2.0, 1.0, 3.0].map(|load| run("Native", load, None));
    let others = [
        run("PreCache", 0.5, None),
        run("MAIO", 1.0, None),
        run("Recorded", 2.5, Some(0.995)),
    ];
    let loads: Vec<Value> = native.into_iter().chain(others).collect();
    let all = json!([{"run": provenance(), "loads": loads}]);
    let table = |name: &str| rendered(name, all.clone(), None).unwrap();
    let text = table("sufficient").unwrap();
    assert!(
        text.starts_with("2026-11-21T01:02:03Z, commit abc · X 9"),
        "{text}"
    );
    for row in [
        "| mmap | Native | 2.00 | 1.00 | 1.00 | 0 % | 4.00 | 3.00 | 1.00 | 3 |",
        "| mmap | MAIO | 1.00 | 1.00 | 0.50 | 67 % | 2.00 | 3.00 | 1.00 | 1 |",
    ] {
        assert!(text.contains(row), "{text}");
        for (from, to) in [("1.00 |", "1.01 |"), ("mmap", "pread"), ("% |", "s |")] {
            let wrong = text.replace(row, &row.replacen(from, to, 1));
            assert_eq!(differences(&wrong, &text).len(), 1, "{to}");
        }
    }
    let wrong = text.replace("2026-11-21", "2026-11-22");
    assert_eq!(differences(&wrong, &text).len(), 1, "another date");
    let recorded = table("recorded").unwrap();
    let row = "| sufficient | mmap | 4.00 | 5.00 | 1.250 | 2.500 | 99.50 % | 1 |";
    assert!(recorded.contains(row), "{recorded}");
    assert_eq!(table("targets"), None, "no run by pread");
    assert_eq!(table("limited"), None, "no such runs");
    assert!(rendered("other", all.clone(), None).is_err());
}

#[test]
fn overheads_are_checked_against_their_row() {
    let all = json!({"run": provenance(), "gib": 4, "rows": [{"reads": "read", "filesystem": "xfs", "cache": "warm",
        "baseline": [2.0, 1.0, 3.0], "with_policy": [2.2, 1.0, 9.0], "cpu_share": [0.02, 0.01, 0.03], "events": 7, "lost": 0,
        "resident": 6_100_000}]});
    let text = rendered("overhead", json!([]), Some(all)).unwrap().unwrap();
    assert!(text.contains("4 GiB, 3 alternating runs each."), "{text}");
    let row =
        "| read | xfs | warm | 2.000 | 2.200 | 1.100 | 1.100 | 1.000 | 2.00 % | 7 | 0 | 6.1 |";
    assert!(text.contains(row), "{text}");
}
