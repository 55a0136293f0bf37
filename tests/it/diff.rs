//! `diff`: the pairs of `fixtures/ask/diff` with the verdicts and distances that their generator computed, and properties that
//! hold for every pair.

mod pairs;
mod properties;

use std::collections::BTreeMap;

use anamnesis::diff::{DifferenceKind, Differences, TensorDifference, ValueTolerance};
use anamnesis::{Checkpoint, CheckpointDiff, diff};
use serde::Deserialize;
use serde_json::Value;

use crate::support::fixture;

/// A pair of checkpoints, and what differs between them.
#[derive(Deserialize)]
struct Case {
    id: String,
    /// Paths from `fixtures/ask`.
    args: [String; 2],
    /// 0 for the same, 1 for others, 2 if a side cannot be read.
    exit: u8,
    counts: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    tensors: BTreeMap<String, Value>,
    values_equal: Option<bool>,
    exit_with_values: Option<u8>,
    exit_with_metadata: Option<u8>,
    exit_with_nmse_1e_3: Option<u8>,
    total: Option<BTreeMap<String, f64>>,
    config: Option<Value>,
    metadata: Option<Value>,
    renames_example: Option<BTreeMap<String, String>>,
    #[serde(default)]
    permuted: Vec<String>,
    note: Option<String>,
}

#[derive(Deserialize)]
struct Manifest {
    cases: Vec<Case>,
}

fn open(path: &str) -> anamnesis::Result<Checkpoint> {
    Checkpoint::open(fixture(&format!("ask/{path}")))
}

/// The differences between two fixtures, with options.
fn found(
    a: &str,
    b: &str,
    with: impl for<'c> Fn(CheckpointDiff<'c>) -> CheckpointDiff<'c>,
) -> Differences {
    let (a, b) = (open(a).unwrap(), open(b).unwrap());
    with(diff(&a, &b)).run().unwrap()
}

fn row<'d>(found: &'d Differences, name: &str) -> &'d TensorDifference {
    let mut rows = found.tensors.iter();
    let has_name = |row: &&TensorDifference| row.a.as_deref() == Some(name);
    rows.find(has_name)
        .unwrap_or_else(|| panic!("{name} is not listed"))
}

fn is_close(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= 1e-9 * expected.abs())
}

#[test]
fn every_pair_has_its_verdict() {
    let text = std::fs::read_to_string(fixture("ask/diff/manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest.cases.len(), 18);
    for case in &manifest.cases {
        check(case);
    }
}

fn check(case: &Case) {
    let (id, [a, b]) = (&case.id, &case.args);
    let (Ok(a_side), Ok(b_side)) = (open(a), open(b)) else {
        assert_eq!(case.exit, 2, "{id}");
        return;
    };
    let all = diff(&a_side, &b_side).list_equal(true).run().unwrap();
    assert_eq!(u8::from(!all.same), case.exit, "{id}: {all:#?}");
    let quiet = diff(&a_side, &b_side).verdict_only(true).run().unwrap();
    assert_eq!(quiet.same, all.same, "{id}");
    let document = serde_json::to_value(&all).unwrap();
    for (kind, count) in case.counts.iter().flatten() {
        assert_eq!(document["counts"][kind], *count, "{id}: {kind}");
    }
    if let Some(equal) = case.values_equal {
        let values = all.tensors.iter().all(|row| row.equal_values == Some(true));
        assert_eq!(values, equal, "{id}");
    }
    if let Some(exit) = case.exit_with_values {
        for verdict_only in [false, true] {
            let values = diff(&a_side, &b_side)
                .values(true)
                .verdict_only(verdict_only);
            assert_eq!(u8::from(!values.run().unwrap().same), exit, "{id}");
        }
    }
    if let Some(exit) = case.exit_with_metadata {
        let with = diff(&a_side, &b_side).metadata(true).run().unwrap();
        assert_eq!(u8::from(!with.same), exit, "{id}");
    }
    if let Some(exit) = case.exit_with_nmse_1e_3 {
        let tolerance = ValueTolerance {
            nmse: Some(1e-3),
            max_abs: None,
        };
        let with = diff(&a_side, &b_side).tolerance(tolerance).run().unwrap();
        assert_eq!(u8::from(!with.same), exit, "{id}");
        assert!(
            !diff(&a_side, &b_side).values(true).run().unwrap().same,
            "{id}"
        );
    }
    for (name, expected) in &case.tensors {
        check_row(id, row(&all, name), expected);
    }
    if let Some(total) = &case.total {
        assert!(
            is_close(all.total.nmse, total["nmse"]),
            "{id}: {:?}",
            all.total
        );
    }
    for (from, to) in case.renames_example.iter().flatten() {
        assert_eq!(row(&all, from).b.as_ref(), Some(to), "{id}");
    }
    for name in &case.permuted {
        let row = row(&all, name);
        // equal once the rows are in order, and not before: the sums over decoded values are there
        assert_eq!(
            (row.differing, row.nmse),
            (Some(0), Some(0.0)),
            "{id}: {name}"
        );
        assert_eq!(row.differing_bits, None, "{id}: {name}");
    }
    for (kind, entries) in case
        .config
        .iter()
        .flat_map(|config| config.as_object().unwrap())
    {
        assert_eq!(&document["config"][kind], entries, "{id}");
    }
    for (kind, keys) in case
        .metadata
        .iter()
        .flat_map(|keys| keys.as_object().unwrap())
    {
        assert_eq!(&document["metadata"][kind], keys, "{id}");
    }
    if case.note.is_some() {
        let removed = all
            .tensors
            .iter()
            .find(|row| row.kind == DifferenceKind::Removed);
        let note = removed.unwrap().note.as_deref().unwrap();
        assert_eq!(note, "equals `model.embed_tokens.weight` of the same side");
    }
}

fn check_row(id: &str, row: &TensorDifference, expected: &Value) {
    let what = format!("{id}: {row:?}");
    if let Some(kind) = expected["kind"].as_str() {
        assert_eq!(row.kind.name(), kind, "{what}");
    }
    if let Some(note) = expected["note"].as_str() {
        assert_eq!(row.note.as_deref(), Some(note), "{what}");
    }
    if let Some(first) = expected.get("first") {
        assert_eq!(serde_json::to_value(&row.first).unwrap(), *first, "{what}");
    }
    if let Some(differing) = expected["differing"].as_u64() {
        assert_eq!(row.differing, Some(differing), "{what}");
    }
    for (name, found) in [
        ("nmse", row.nmse),
        ("max_abs", row.max_abs),
        ("rmse", row.rmse),
        ("cosine", row.cosine),
    ] {
        if let Some(expected) = expected[name].as_f64() {
            assert!(is_close(found, expected), "{what}: {name} {expected}");
        }
    }
}
