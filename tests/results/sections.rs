//! Checks the blocks that `cargo bench-peers` generates: the JSON of a section has a row for each variant of each case.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::{Block, cells, numbers, rounds_to};
use crate::{missing_provenance, results};

/// Order of the output dtypes in a cell that holds all of them.
const OUTPUTS: [&str; 3] = ["BF16", "F16", "F32"];

pub(crate) fn check_block(block: &Block) -> Vec<String> {
    let name = format!(
        "results/{}.json",
        block.name.split(' ').next().unwrap_or_default()
    );
    match results(&name) {
        Some(results) => check(&results, &block.text),
        None if block.is_empty() => Vec::new(),
        None => vec![format!("no {name}")],
    }
}

/// The figures of a block that are not in its results.
fn check(results: &Value, block: &str) -> Vec<String> {
    let mut wrong = missing_provenance(&results["run"]);
    let empty = Vec::new();
    let rows = results["rows"].as_array().unwrap_or(&empty);
    // numbers outside of tables (versions, dates, differences) occur literally in the results
    let texts = results["run"].to_string()
        + &results["notes"].to_string()
        + &results["missing"].to_string();
    let titles = rows
        .iter()
        .map(|row| row["case"].as_str().unwrap_or_default())
        .collect::<Vec<_>>();
    let (mut case, mut header) = ("", Vec::new());
    for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix('#') {
            case = title.trim_start_matches('#').trim();
            header.clear();
            if !titles.contains(&case) {
                wrong.push(format!("no case {case:?}"));
            }
            continue;
        }
        if !line.starts_with('|') {
            header.clear();
            let known = |text: &str| {
                texts.contains(text)
                    || titles.iter().any(|t| t.contains(text))
                    || is_sample_count(rows, text)
            };
            let is_prose = !line.starts_with("![");
            let unknown = numbers(line.trim_start_matches("10⁹"))
                .into_iter()
                .map(|(text, ..)| text)
                .filter(|text| is_prose && !known(text));
            wrong.extend(unknown.map(|text| format!("{text} of {line:?}")));
            continue;
        }
        let cells = cells(line);
        if header.is_empty() {
            header = cells;
        } else if !line.starts_with("|---") {
            wrong.extend(
                row(rows, case, &header, &cells)
                    .into_iter()
                    .map(|what| format!("{what} of {line:?}")),
            );
        }
    }
    wrong
}

/// Whether this is the number of samples of a row.
fn is_sample_count(rows: &[Value], text: &str) -> bool {
    rows.iter()
        .any(|row| row["n"].as_u64().is_some_and(|n| text.parse() == Ok(n)))
}

/// The figures of a line with all output dtypes that are not the speed of that variant to that dtype.
fn outputs(rows: &[Value], header: &[&str], cells: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (title, cell) in header.iter().zip(cells).skip(1) {
        for (output, text) in OUTPUTS.iter().zip(cell.split(" / ")) {
            let case = format!("{} {output}", cells[0]);
            // the limit is a case of its own name
            let is_variant = |variant: &str| {
                [title, &cells[0]].contains(&&variant) || variant == format!("ours, {title}")
            };
            let row = rows.iter().find(|row| {
                row["case"] == case.as_str() && row["variant"].as_str().is_some_and(is_variant)
            });
            let speed = row
                .and_then(|row| Some(row["more"]["elements"].as_f64()? / row["median"].as_f64()?));
            let printed = text.parse().unwrap_or(f64::NAN);
            if !speed.is_some_and(|speed| rounds_to(text, printed, speed)) {
                wrong.push(format!("{text} ({title} to {output})"));
            }
        }
        if cell.split(" / ").count() != OUTPUTS.len() {
            wrong.push(format!("{cell} ({title})"));
        }
    }
    wrong
}

/// The figures of a table's line that are in no row of its case.
fn row(rows: &[Value], case: &str, header: &[&str], cells: &[&str]) -> Vec<String> {
    if header.first() == Some(&"type") && header.get(1) != Some(&"output") {
        return outputs(rows, header, cells);
    }
    let (speeds, brief) = (
        header.get(1) == Some(&"output"),
        header.first() == Some(&"case"),
    );
    let (name, skipped) = match (speeds, brief) {
        (true, _) => (format!("{} {}", cells[0], cells[1]), 2),
        (_, true) => (cells[0].to_owned(), 1),
        _ => (case.to_owned(), 1),
    };
    let rows_of_case: Vec<&Value> = rows
        .iter()
        .filter(|row| row["case"] == name.as_str())
        .collect();
    let row_of = |variant: &str| rows_of_case.iter().find(|row| row["variant"] == variant);
    let medians: BTreeMap<&str, f64> = rows_of_case
        .iter()
        .map(|row| {
            (
                row["variant"].as_str().unwrap_or_default(),
                row["median"].as_f64().unwrap_or(0.0),
            )
        })
        .collect();
    let ratios: Vec<f64> = medians
        .values()
        .flat_map(|a| medians.values().map(move |b| a / b))
        .collect();
    let fastest: Vec<f64> = rows_of_case
        .iter()
        .filter_map(|row| row["minimum"].as_f64())
        .collect();
    let fastest: Vec<f64> = fastest
        .iter()
        .flat_map(|a| fastest.iter().map(move |b| a / b))
        .collect();
    let pairs: Vec<f64> = rows_of_case
        .iter()
        .flat_map(|a| rows_of_case.iter().filter_map(|b| paired_ratio(a, b)))
        .collect();
    let mut wrong = Vec::new();
    for (title, cell) in header.iter().zip(cells).skip(skipped) {
        let row = row_of(if speeds { title } else { cells[0] });
        if brief && !shows_its_variant(&rows_of_case, cell) {
            wrong.push(format!("{cell} ({title})"));
        }
        let mut known = Vec::new();
        row.iter().for_each(|row| values(row, &mut known));
        // a line of a brief table may show any variant of its case, whose name may hold numbers
        for row in rows_of_case.iter().filter(|_| brief) {
            values(row, &mut known);
            known.extend(
                numbers(row["variant"].as_str().unwrap_or_default())
                    .iter()
                    .map(|(_, value, _)| value),
            );
        }
        if let Some(elements) = row.and_then(|row| row["more"]["elements"].as_f64()) {
            known.push(
                elements
                    / row
                        .and_then(|row| row["median"].as_f64())
                        .unwrap_or(f64::NAN),
            );
        }
        for (text, value, unit) in numbers(cell) {
            let known = match (unit, *title) {
                ("×", "ratio of fastest") => &fastest,
                ("×", title) if title.starts_with("ours ÷ ") => &pairs,
                ("×", _) => &ratios,
                _ => &known,
            };
            if !known
                .iter()
                .any(|known| rounds_to(text, value, known / scale(unit)))
            {
                wrong.push(format!("{text} {unit} ({title})"));
            }
        }
    }
    wrong
}

/// Whether a cell `VARIANT: TIME (RATIO)` of a brief table has the median of that variant, which may be a limit.
fn shows_its_variant(rows: &[&Value], cell: &str) -> bool {
    let Some((variant, rest)) = cell.rsplit_once(": ") else {
        return true; // a column of one variant, or an empty cell
    };
    let time = rest.split(" (").next().unwrap_or_default();
    let Some(&(text, value, unit)) = numbers(time).first() else {
        return false;
    };
    let is_variant = |row: &&&Value| {
        let name = row["variant"].as_str().unwrap_or_default();
        name == variant || name.strip_prefix("limit: ") == Some(variant)
    };
    let median = rows
        .iter()
        .find(is_variant)
        .and_then(|row| row["median"].as_f64());
    median.is_some_and(|median| rounds_to(text, value, median / scale(unit)))
}

/// Nanoseconds or KiB per unit.
fn scale(unit: &str) -> f64 {
    match unit {
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "MiB" => 1024.0,
        _ => 1.0,
    }
}

/// The median over rounds of `b`'s time divided by `a`'s.
fn paired_ratio(a: &Value, b: &Value) -> Option<f64> {
    let samples = |row: &Value| {
        row["samples"]
            .as_array()?
            .iter()
            .map(Value::as_f64)
            .collect::<Option<Vec<f64>>>()
    };
    let mut times: Vec<f64> = samples(a)?
        .iter()
        .zip(samples(b)?)
        .map(|(a, b)| b / a)
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Collects all numbers within a value.
fn values(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(all) => all.iter().for_each(|value| values(value, into)),
        Value::Object(all) => all.values().for_each(|value| values(value, into)),
        _ => {}
    }
}

#[test]
fn a_number_that_is_not_in_the_results_is_reported() {
    let run = serde_json::json!({"date": "2026-11-21T01:02:03Z", "commit": "abc", "dirty": false,
        "cpu": "X 9", "kernel": "L", "rustc": "r"});
    let row = |variant: &str, median: f64| {
        serde_json::json!({"case": "a.pth", "variant": variant, "median": median, "n": 7, "peak_kib": 2048,
            "limit": {"what": "dd", "median": 5e6}})
    };
    let speed = |variant: &str, samples: [f64; 3]| {
        serde_json::json!({"case": "Q4_0 BF16", "variant": variant, "median": samples[1], "samples": samples,
            "more": {"elements": 60.0}})
    };
    let speeds = [
        speed("ours", [4.0, 5.0, 6.0]),
        speed("peer", [12.0, 10.0, 9.0]),
    ];
    let rows = [row("ours 1.0", 2e7), row("b", 4.46e7)]
        .into_iter()
        .chain(speeds)
        .collect::<Vec<_>>();
    let results = serde_json::json!({"run": run, "rows": rows});
    let block = |cells: &str| {
        format!(
            "2026-11-21T01:02:03Z, X 9\n\n### a.pth\n| variant | median | n | against |\n|---|---|---|---|\n{cells}\n"
        )
    };
    assert_eq!(
        check(
            &results,
            &block("| ours 1.0 | 20.00 ms | 7 | 1.00× |\n| b | 44.60 ms | 7 | 2.23× |")
        ),
        Vec::<String>::new()
    );
    for (cells, what) in [
        ("| ours 1.0 | 20.01 ms | 7 | 1.00× |", "20.01 ms (median)"),
        ("| ours 1.0 | 20.00 s | 7 | 1.00× |", "20.00 s (median)"),
        ("| ours 1.0 | 20.00 ms | 9 | 1.00× |", "9  (n)"),
        ("| b | 44.60 ms | 7 | 2.24× |", "2.24 × (against)"),
        ("| c | 44.60 ms | 7 | 2.23× |", "44.60 ms (median)"),
    ] {
        let wrong = check(&results, &block(cells));
        assert!(
            wrong.iter().any(|wrong| wrong.starts_with(what)),
            "{cells}: {wrong:?}"
        );
    }
    let matrix = |speed: &str, times: &str| {
        format!(
            "| type | output | ours | ours ÷ best |\n|---|---|---|---|\n| Q4_0 | BF16 | {speed} | {times}× |\n"
        )
    };
    assert_eq!(
        check(&results, &matrix("12.00", "2.00")),
        Vec::<String>::new()
    );
    assert_eq!(check(&results, &matrix("12.10", "2.00")).len(), 1);
    assert_eq!(
        check(&results, &matrix("12.00", "1.80")).len(),
        1,
        "the ratio of medians is not the paired ratio"
    );
    let builds = |cells: &str| format!("| type | baseline | avx2 |\n|---|---|---|\n{cells}\n");
    let all = |case: &str, variant: &str, ns: [f64; 3]| {
        let row = |(output, ns): (&str, f64)| {
            serde_json::json!({"case": format!("{case} {output}"), "variant": variant, "median": ns,
                "more": {"elements": 60.0}})
        };
        ["BF16", "F16", "F32"]
            .into_iter()
            .zip(ns)
            .map(row)
            .collect::<Vec<_>>()
    };
    let rows = [
        all("memcpy", "memcpy", [2.0, 2.0, 4.0]),
        all("Q4_0", "ours, baseline", [30.0, 30.0, 60.0]),
    ]
    .concat();
    let rows = [rows, all("Q4_0", "ours, avx2", [5.0, 7.0, 8.0])].concat();
    let kernels = serde_json::json!({"run": run, "rows": rows});
    let wrong = |cells: &str| check(&kernels, &builds(cells));
    assert_eq!(
        wrong("| Q4_0 | 2.0 / 2.0 / 1.0 | 12.0 / 8.6 / 7.5 |"),
        Vec::<String>::new()
    );
    assert_eq!(
        wrong("| memcpy | 30.0 / 30.0 / 15.0 | 30.0 / 30.0 / 15.0 |"),
        Vec::<String>::new()
    );
    assert_eq!(
        wrong("| Q4_0 | 2.0 / 2.0 / 1.0 | 8.6 / 12.0 / 7.5 |").len(),
        2,
        "speeds to other dtypes"
    );
    assert_eq!(
        wrong("| Q4_0 | 12.0 / 8.6 / 7.5 | 12.0 / 8.6 / 7.5 |").len(),
        3,
        "speeds of another build"
    );
    assert_eq!(
        wrong("| Q4_1 | 2.0 / 2.0 / 1.0 | 12.0 / 8.6 |").len(),
        6,
        "no such type, and a dtype too few"
    );
    let brief = |line: &str| format!("| case | ours | the fastest peer |\n|---|---|---|\n{line}\n");
    assert_eq!(
        check(
            &results,
            &brief("| a.pth | **20.00 ms** | b: 44.60 ms (2.23×) |")
        ),
        Vec::<String>::new()
    );
    assert_eq!(
        check(
            &results,
            &brief("| a.pth | **21.00 ms** | b: 44.60 ms (2.24×) |")
        )
        .len(),
        2
    );
    assert_eq!(
        check(
            &results,
            &brief("| a.pth | **20.00 ms** | ours 1.0: 44.60 ms (2.23×) |")
        )
        .len(),
        1,
        "the median of another variant"
    );
    assert_eq!(
        check(&results, "measured 8 times\n").len(),
        1,
        "a number that is in no text"
    );
    let dirty = serde_json::json!({"run": {"date": "d", "dirty": true}, "rows": []});
    assert_eq!(missing_provenance(&dirty["run"]).len(), 5);
}
