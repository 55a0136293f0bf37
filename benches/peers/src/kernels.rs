//! Decoding speed in a warm cache: ours, the peer's, ggml's, and copying the output.

mod agree;
mod blocks;
mod buffer;
mod schemes;
mod stored;
mod variant;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Output};

use anamnesis::Dtype;
use variant::{COPY, DTYPES, OURS, Row, Variant};

const ROUNDS: usize = 7;

/// Nanoseconds a call, one figure a round, by output and variant.
type Runs = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// The table for these rows, or all: one process per variant and row, alternating.
pub fn compare(names: &[&str]) -> ExitCode {
    if let Some(unknown) = names.iter().find(|name| row(name).is_none()) {
        let known: Vec<&str> = Row::all().map(Row::name).collect();
        eprintln!("no type {unknown:?}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let variants = variant::built();
    let labels: Vec<&str> = variants.iter().map(|v| v.label).collect();
    println!("10⁹ elements/s, one thread, median of {ROUNDS} processes' best; `*` returns a fresh `Vec`.\n");
    println!("| type | output | {} | ours / best peer | ours / memcpy |", labels.join(" | "));
    println!("|---|---|{}---|---|", "---|".repeat(variants.len()));
    let mut notes = Vec::new();
    for row in Row::all().filter(|row| names.is_empty() || names.contains(&row.name())) {
        notes.extend(disagreements(row, &variants));
        let mut runs = Runs::new();
        for _ in 0..ROUNDS {
            for variant in &variants {
                measure(row, variant, &mut runs);
            }
        }
        DTYPES.iter().for_each(|dtype| report(row, dtype.name(), &variants, &mut runs));
    }
    println!();
    notes.iter().for_each(|note| println!("- {note}"));
    if notes.is_empty() {
        println!("All outputs are equal to ours, bit for bit, where both are there.");
    }
    ExitCode::SUCCESS
}

/// What one process of the comparison does: `time` or `bytes` of a variant.
pub fn one(variant: &str, name: &str, dtype: Option<&str>) -> ExitCode {
    match (row(name), dtype.map(Dtype::from_name)) {
        (Some(row), None) => variant::time(variant, row),
        (Some(row), Some(Some(dtype))) => variant::bytes(variant, row, dtype),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn row(name: &str) -> Option<Row> {
    Row::all().find(|row| row.name() == name)
}

fn run(variant: &Variant, args: &[&str]) -> Output {
    let out = Command::new(&variant.program).args(["kernel", variant.name]).args(args).output();
    let out = out.expect("the variant starts");
    assert!(out.status.success(), "{}: {args:?}: {}", variant.label, String::from_utf8_lossy(&out.stderr));
    out
}

fn measure(row: Row, variant: &Variant, runs: &mut Runs) {
    let out = run(variant, &[row.name()]).stdout;
    for line in String::from_utf8_lossy(&out).lines() {
        let (dtype, time) = line.split_once(' ').expect("an output and a time");
        let dtype = DTYPES.iter().find(|d| d.name() == dtype).expect("one of ours");
        runs.entry((dtype.name(), variant.label)).or_default().push(time.parse().expect("a number"));
    }
}

/// Decodes once with every variant, and says which do not give our bits.
fn disagreements(row: Row, variants: &[Variant]) -> Vec<String> {
    let mut notes = Vec::new();
    for &dtype in DTYPES {
        let decoded = |variant: &Variant| run(variant, &[row.name(), dtype.name()]).stdout;
        let ours = variants.iter().find(|v| v.name == OURS).map(decoded).unwrap_or_default();
        for variant in variants.iter().filter(|v| v.name != OURS && v.name != COPY && !ours.is_empty()) {
            let other = decoded(variant);
            if !other.is_empty() {
                let difference = agree::difference(dtype, &ours, &other);
                notes.extend(difference.map(|d| format!("{} {dtype}, {}: {d}", row.name(), variant.label)));
            }
        }
    }
    notes
}

fn report(row: Row, dtype: &'static str, variants: &[Variant], runs: &mut Runs) {
    let mut speeds = Vec::new();
    for variant in variants {
        let speed = runs.get_mut(&(dtype, variant.label)).map(|times| {
            times.sort_unstable_by(f64::total_cmp);
            row.elements() as f64 / times[times.len() / 2]
        });
        speeds.push((variant, speed));
    }
    let ours = speeds.iter().find(|(v, _)| v.name == OURS).and_then(|(_, speed)| *speed);
    let copy = speeds.iter().find(|(v, _)| v.name == COPY).and_then(|(_, speed)| *speed);
    let peers = speeds.iter().filter(|(v, _)| v.name != OURS && v.name != COPY);
    let best = peers.filter_map(|(_, speed)| *speed).max_by(f64::total_cmp);
    if ours.is_none() && best.is_none() {
        return;
    }
    let cells = speeds.iter().map(|(v, speed)| match speed {
        Some(speed) if row.is_fresh(v.name) => format!("{speed:.2}*"),
        Some(speed) => format!("{speed:.2}"),
        None => "–".to_owned(),
    });
    let ratio = |to: Option<f64>| ours.zip(to).map_or("–".to_owned(), |(ours, to)| format!("{:.2}×", ours / to));
    println!(
        "| {} | {dtype} | {} | {} | {} |",
        row.name(),
        cells.collect::<Vec<_>>().join(" | "),
        ratio(best),
        ratio(copy)
    );
}
