//! Figures in the documents come from committed results: every number of a block between `<!-- results: … -->` and
//! `<!-- /results -->` is found in that section's JSON, which says when, of which commit and on which machine it was
//! measured. Figures elsewhere are listed here, with a reason; the list shrinks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- /results -->";

/// Document, heading (or all of it), why its figures may stand there by hand.
static BY_HAND: &[(&str, Option<&str>, &str)] = &[
    ("docs/performance.md", Some("Kernels"), "`cargo bench --bench table`, which writes no data yet"),
    ("docs/performance.md", Some("Schemes"), "`cargo bench --bench schemes`, which writes no data yet"),
    (
        "docs/page-cache.md",
        None,
        "tables of `pagecache report`, from benches/pagecache/results.json, and of `pagecache overhead`",
    ),
    ("docs/perf-experiments.md", None, "a log: each entry's figures are of its own day and commit"),
];

#[test]
fn every_number_of_a_block_is_in_its_results() {
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for (name, block) in split(&text).unwrap_or_else(|e| panic!("{path}: {e}")).1 {
            let file = root().join(format!("benches/results/{}.json", name.split(' ').next().unwrap()));
            let found = match fs::read(&file) {
                Ok(bytes) => check(&serde_json::from_slice(&bytes).unwrap(), &block),
                // a block may wait for its run; then it has nothing to say
                Err(_) if !block.contains(|c: char| c.is_ascii_digit()) => Vec::new(),
                Err(e) => vec![format!("{}: {e}", file.display())],
            };
            wrong.extend(found.into_iter().map(|what| format!("{path}: {name}: {what}")));
        }
    }
    assert!(wrong.is_empty(), "not in the results:\n{}", wrong.join("\n"));
}

#[test]
fn figures_by_hand_are_on_the_list_and_the_list_is_no_longer() {
    let mut seen = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for (heading, line) in figures(&split(&text).unwrap().0) {
            let listed = BY_HAND.iter().position(|(of, at, _)| *of == path && at.is_none_or(|at| at == heading));
            let listed = listed.unwrap_or_else(|| {
                panic!(
                    "{path}: {heading}: {line:?} has a measured figure that comes from no results; render it from them"
                )
            });
            seen.push(listed);
        }
    }
    for (i, (path, heading, _)) in BY_HAND.iter().enumerate() {
        assert!(seen.contains(&i), "{path}: {heading:?} has no figures by hand any more: take it off the list");
    }
}

#[test]
fn committed_results_say_when_and_where() {
    let folder = root().join("benches/results");
    let Ok(files) = fs::read_dir(&folder) else {
        println!("SKIPPED: no results are committed");
        return;
    };
    for path in files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let results: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(origin(&results), Vec::<String>::new(), "{}", path.display());
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and docs/*.md, from the root.
fn documents() -> Vec<String> {
    let docs =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| PathBuf::from("docs").join(entry.unwrap().file_name()));
    let all = docs.filter(|path| path.extension().is_some_and(|e| e == "md"));
    all.map(|path| path.to_str().unwrap().replace('\\', "/")).chain(["README.md".to_owned()]).collect()
}

/// The text without its blocks, and the blocks with what their markers say.
fn split(text: &str) -> Result<(String, Vec<(String, String)>), String> {
    let (mut outside, mut blocks, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once("-->").ok_or("a marker does not end")?;
        let (block, next) = after.split_once(END).ok_or_else(|| format!("{name}has no end"))?;
        outside += before;
        blocks.push((name.trim().to_owned(), block.to_owned()));
        rest = next;
    }
    Ok((outside + rest, blocks))
}

/// Lines outside of code with a measured figure, under their headings.
fn figures(text: &str) -> Vec<(String, String)> {
    let (mut heading, mut code, mut found) = (String::new(), false, Vec::new());
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if line.starts_with('#') && !code {
            heading = line.trim_start_matches('#').trim().to_owned();
        } else if !code && numbers(line).iter().any(|(_, _, unit)| ["ns", "µs", "ms", "s", "×", "GB/s"].contains(unit))
        {
            found.push((heading.clone(), line.to_owned()));
        }
    }
    found
}

/// What a block says that its results do not.
fn check(results: &Value, block: &str) -> Vec<String> {
    let mut wrong = origin(results);
    let empty = Vec::new();
    let rows = results["rows"].as_array().unwrap_or(&empty);
    // of the others every number stands there as it does here: versions, dates, what disagreed
    let texts = results["run"].to_string() + &results["notes"].to_string() + &results["missing"].to_string();
    let titles = rows.iter().map(|row| row["case"].as_str().unwrap_or_default()).collect::<Vec<_>>();
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
            let known =
                |text: &str| texts.contains(text) || titles.iter().any(|t| t.contains(text)) || all_n(rows, text);
            let plain = !line.starts_with("![") && !line.starts_with("10⁹");
            let unknown = numbers(line).into_iter().map(|(text, ..)| text).filter(|text| plain && !known(text));
            wrong.extend(unknown.map(|text| format!("{text} of {line:?}")));
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if header.is_empty() {
            header = cells;
        } else if !line.starts_with("|---") {
            wrong.extend(row(rows, case, &header, &cells).into_iter().map(|what| format!("{what} of {line:?}")));
        }
    }
    wrong
}

fn all_n(rows: &[Value], text: &str) -> bool {
    rows.iter().any(|row| row["n"].as_u64().is_some_and(|n| text.parse() == Ok(n)))
}

/// What of a table's line is in no row of its case.
fn row(rows: &[Value], case: &str, header: &[&str], cells: &[&str]) -> Vec<String> {
    let (speeds, brief) = (header.get(1) == Some(&"output"), header.first() == Some(&"case"));
    let (name, skipped) = match (speeds, brief) {
        (true, _) => (format!("{} {}", cells[0], cells[1]), 2),
        (_, true) => (cells[0].to_owned(), 1),
        _ => (case.to_owned(), 1),
    };
    let mine: Vec<&Value> = rows.iter().filter(|row| row["case"] == name.as_str()).collect();
    let of = |variant: &str| mine.iter().find(|row| row["variant"] == variant);
    let medians: BTreeMap<&str, f64> = mine
        .iter()
        .map(|row| (row["variant"].as_str().unwrap_or_default(), row["median"].as_f64().unwrap_or(0.0)))
        .collect();
    let ratios: Vec<f64> = medians.values().flat_map(|a| medians.values().map(move |b| a / b)).collect();
    let mut wrong = Vec::new();
    for (title, cell) in header.iter().zip(cells).skip(skipped) {
        let row = of(if speeds { title } else { cells[0] });
        let mut known = Vec::new();
        row.iter().for_each(|row| values(row, &mut known));
        // a line of a brief table is about a whole case, and names its variants
        for row in mine.iter().filter(|_| brief) {
            values(row, &mut known);
            known.extend(numbers(row["variant"].as_str().unwrap_or_default()).iter().map(|(_, value, _)| value));
        }
        if let Some(elements) = row.and_then(|row| row["more"]["elements"].as_f64()) {
            known.push(elements / row.and_then(|row| row["median"].as_f64()).unwrap_or(f64::NAN));
        }
        for (text, value, unit) in numbers(cell) {
            let scale = match unit {
                "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "MiB" => 1024.0,
                _ => 1.0,
            };
            let known = if unit == "×" { &ratios } else { &known };
            // as many places as are printed, and what rounding to them may hide
            let places = text.split_once('.').map_or(0, |(_, places)| places.len());
            let half = 0.5001 * 10_f64.powi(-i32::try_from(places).unwrap());
            if !known.iter().any(|known| (known / scale - value).abs() <= half) {
                wrong.push(format!("{text} {unit} ({title})"));
            }
        }
    }
    wrong
}

/// All numbers within a value.
fn values(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(all) => all.iter().for_each(|value| values(value, into)),
        Value::Object(all) => all.values().for_each(|value| values(value, into)),
        _ => {}
    }
}

/// What the results do not say of themselves.
fn origin(results: &Value) -> Vec<String> {
    let wanted = ["date", "commit", "cpu", "kernel", "rustc"];
    let missing = wanted.iter().filter(|key| results["run"][**key].as_str().is_none_or(str::is_empty));
    let mut missing: Vec<String> = missing.map(|key| format!("no {key} in the results")).collect();
    if results["run"]["dirty"] != Value::Bool(false) {
        missing.push("the results are of a tree with changes".to_owned());
    }
    missing
}

/// Numbers of a line with their units: digits that stand alone, with at most one point.
fn numbers(line: &str) -> Vec<(&str, f64, &str)> {
    let mut found = Vec::new();
    let (mut at, mut before) = (0, ' ');
    while let Some(c) = line[at..].chars().next() {
        if !c.is_ascii_digit() || before.is_alphanumeric() || before == '_' {
            (at, before) = (at + c.len_utf8(), c);
            continue;
        }
        let len = line[at..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(line.len() - at);
        let text = line[at..at + len].trim_end_matches('.');
        let rest = line[at + text.len()..].trim_start_matches([' ', '\u{a0}', '*']);
        let unit = if rest.starts_with('×') {
            "×"
        } else {
            &rest[..rest.find(|c: char| !c.is_alphabetic() && c != '/').unwrap_or(rest.len())]
        };
        found.extend(text.parse().ok().map(|value| (text, value, unit)));
        (at, before) = (at + len, '0');
    }
    found
}

#[test]
fn a_number_that_is_not_in_the_results_is_found() {
    let run = serde_json::json!({"date": "2026-11-21T01:02:03Z", "commit": "abc", "dirty": false,
        "cpu": "X 9", "kernel": "L", "rustc": "r"});
    let row = |variant: &str, median: f64| {
        serde_json::json!({"case": "a.pth", "variant": variant, "median": median, "n": 7, "peak_kib": 2048,
            "limit": {"what": "dd", "median": 5e6}})
    };
    let speed = serde_json::json!({"case": "Q4_0 BF16", "variant": "ours", "median": 5.0, "more": {"elements": 60.0}});
    let results = serde_json::json!({"run": run, "rows": [row("ours 1.0", 2e7), row("b", 4.46e7), speed]});
    let block = |cells: &str| {
        format!(
            "2026-11-21T01:02:03Z, X 9\n\n### a.pth\n| variant | median | n | against |\n|---|---|---|---|\n{cells}\n"
        )
    };
    assert_eq!(
        check(&results, &block("| ours 1.0 | 20.00 ms | 7 | 1.00× |\n| b | 44.60 ms | 7 | 2.23× |")),
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
        assert!(wrong.iter().any(|wrong| wrong.starts_with(what)), "{cells}: {wrong:?}");
    }
    let matrix = |speed: &str| {
        format!("| type | output | ours | ours / best |\n|---|---|---|---|\n| Q4_0 | BF16 | {speed} | – |\n")
    };
    assert_eq!(check(&results, &matrix("12.00")), Vec::<String>::new());
    assert_eq!(check(&results, &matrix("12.10")).len(), 1);
    let brief = |line: &str| format!("| case | ours | the fastest peer |\n|---|---|---|\n{line}\n");
    assert_eq!(check(&results, &brief("| a.pth | **20.00 ms** | b: 44.60 ms (2.23×) |")), Vec::<String>::new());
    assert_eq!(check(&results, &brief("| a.pth | **21.00 ms** | b: 44.60 ms (2.24×) |")).len(), 2);
    assert_eq!(check(&results, "measured 8 times\n").len(), 1, "a number of no text");
    let dirty = serde_json::json!({"run": {"date": "d", "dirty": true}, "rows": []});
    assert_eq!(origin(&dirty).len(), 5);
}
