//! The renderer of `cargo bench-peers`, compiled into this test: a block must be what it makes of the committed results. Its own
//! tests of tables and rows run here as well.
#![allow(dead_code, missing_docs, unreachable_pub)] // the program that measures uses more of it

#[path = "../../benches/peers/src/results/markdown.rs"]
pub mod markdown;
#[path = "../../benches/peers/src/results/provenance.rs"]
pub mod provenance;
#[path = "../../benches/peers/src/results/rows.rs"]
mod rows;
#[path = "../../benches/peers/src/results/speeds.rs"]
mod speeds;

use std::path::PathBuf;

pub use rows::{Limit, Missing, Outcome, ResultRow, SectionResults, median};

use crate::text::Block;
use crate::{missing_provenance, results};

/// The root of the repository, of which `provenance` states the commit.
pub fn repository() -> PathBuf {
    crate::root().to_owned()
}

/// The block as it is rendered from its results; an error if there are none.
pub(crate) fn block(marker: &str) -> Result<String, String> {
    let (name, form) = marker.split_once(' ').unwrap_or((marker, ""));
    let results = results(&format!("results/{name}.json")).ok_or(format!("no {name}.json"))?;
    if let Some(missing) = missing_provenance(&results["run"]).first() {
        return Err(missing.clone());
    }
    let section = serde_json::from_value(results).map_err(|e| format!("{name}.json: {e}"))?;
    Ok(markdown::block(&section, form))
}

/// The lines of a block that are not rendered from its results.
pub(crate) fn check(block: &Block) -> Vec<String> {
    match self::block(&block.name) {
        Ok(rendered) => differences(&block.text, &rendered),
        Err(_) if block.is_empty() => Vec::new(),
        Err(error) => vec![error],
    }
}

/// The lines of a block that differ from the rendered text.
pub(crate) fn differences(block: &str, rendered: &str) -> Vec<String> {
    let (block, rendered) = (block.trim(), rendered.trim());
    let mut wrong: Vec<String> = block
        .lines()
        .filter(|line| !rendered.lines().any(|other| other == *line))
        .map(|line| format!("{line:?} is not rendered"))
        .collect();
    if wrong.is_empty() && block != rendered {
        wrong.push("lines are missing, or in another order".to_owned());
    }
    wrong
}

#[test]
fn a_number_that_is_not_in_the_results_is_reported() {
    let run = serde_json::json!({"date": "2026-11-21T01:02:03Z", "commit": "abc", "dirty": false, "rustc": "r", "kernel": "L",
        "cpu": "X 9", "cores": 2, "memory_gib": 4.0, "python": {}, "rounds": 3});
    let row = |variant: &str, ns: f64| ResultRow::new("a.pth".into(), variant.into(), vec![ns]);
    let outcome = Outcome {
        rows: vec![row("ours", 2e7), row("b", 4.46e7)],
        ..Outcome::default()
    };
    let section = SectionResults {
        section: "s".to_owned(),
        run: serde_json::from_value(run).unwrap(),
        outcome,
    };
    let rendered = markdown::block(&section, "brief");
    assert!(
        rendered.contains("| a.pth | **20.00 ms** | b: 44.60 ms (2.23×) |"),
        "{rendered}"
    );
    assert_eq!(differences(&rendered, &rendered), Vec::<String>::new());
    for (from, to) in [
        ("20.00 ms", "20.01 ms"),
        ("2.23×", "2.24×"),
        ("b: ", "c: "),
        ("2026-11-21", "2026-11-22"),
    ] {
        let wrong = rendered.replace(from, to);
        assert_eq!(differences(&wrong, &rendered).len(), 1, "{to}");
    }
    let (without_row, _) = rendered.split_once("| a.pth").unwrap();
    assert_eq!(differences(without_row, &rendered).len(), 1);
    let dirty = serde_json::json!({"date": "d", "dirty": true});
    assert_eq!(missing_provenance(&dirty).len(), 5);
}
