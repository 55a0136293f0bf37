//! Results as Markdown tables.

use std::fmt::Write;

use super::{Outcome, Row, Section, matrix, plot};

/// What is compared, not shown.
const HIDDEN: &[&str] = &["sum", matrix::ELEMENTS];
/// The order of columns beyond those of every row; others follow by name.
const ORDER: &[&str] = &[
    "first ns",
    "files",
    "least ns",
    "p25 ns",
    "p75 ns",
    "most ns",
    "processor ns",
    "faults",
];

/// A section, or of its cases those whose names begin with a prefix: where it ran, tables, what is missing, plots.
pub fn section(section: &Section, prefix: Option<&str>) -> String {
    let mut found = section.found.clone();
    if let Some(prefix) = prefix {
        found.rows.retain(|row| row.case.starts_with(prefix));
        found
            .missing
            .retain(|missing| missing.case.starts_with(prefix));
        found.notes.clear();
    }
    let mut text = format!("{}.\n{}", section.run.line(), outcome(&found));
    if prefix.is_none() {
        for (i, title) in plot::titles(section).iter().enumerate() {
            let _ = write!(text, "\n![{title}]({})\n", plot::file(&section.section, i));
        }
    }
    text
}

/// What is compared with us and is no peer: bounds, and naive ways.
const NO_PEERS: &[&str] = &[
    "limit: ",
    "whole file: ",
    "a Vec per tensor",
    "our pool",
    "zeropool",
    "dd ",
];

/// A line for each case: the fastest of ours, and the fastest and the slowest of the peers.
pub fn brief(section: &Section) -> String {
    // when, of which commit, on which machine; versions are in the long form
    let run = section
        .run
        .line()
        .split(" · ")
        .take(2)
        .collect::<Vec<_>>()
        .join(" · ");
    let mut text =
        format!("{run}.\n\n| case | ours | the fastest peer | the slowest |\n|---|---|---|---|\n");
    for case in section.found.cases() {
        let mut rows = section.found.of(case);
        rows.sort_by(|a, b| a.median.total_cmp(&b.median));
        let Some(ours) = rows.iter().find(|row| row.is_ours()) else {
            continue;
        };
        let is_peer =
            |row: &&&Row| !row.is_ours() && !NO_PEERS.iter().any(|no| row.variant.starts_with(no));
        let mut peers = rows.iter().filter(is_peer);
        let peer = |row: &&Row| {
            format!(
                "{}: {} ({})",
                row.variant,
                time(row.median),
                times(row.median / ours.median)
            )
        };
        let (fastest, slowest) = (peers.next().map(peer), peers.next_back().map(peer));
        let [fastest, slowest] =
            [fastest, slowest].map(|peer| peer.unwrap_or_else(|| "–".to_owned()));
        let _ = writeln!(
            text,
            "| {case} | **{}** | {fastest} | {slowest} |",
            time(ours.median)
        );
    }
    text
}

/// The tables, what is missing and why, and what was found when results were compared.
pub fn outcome(found: &Outcome) -> String {
    let mut text = matrix::tables(found);
    for case in found.cases() {
        let rows = found.of(case);
        if !rows[0].more.contains_key(matrix::ELEMENTS) {
            text += &table(case, &rows);
        }
    }
    let missing = found
        .missing
        .iter()
        .map(|m| format!("- not there: {} ({}): {}", m.variant, m.case, m.reason));
    let notes = found.notes.iter().map(|note| format!("- {note}"));
    let list: Vec<String> = notes.chain(missing).collect();
    if !list.is_empty() {
        let _ = write!(text, "\n{}\n", list.join("\n"));
    }
    text
}

fn table(case: &str, rows: &[&Row]) -> String {
    let mut extra: Vec<&str> = Vec::new();
    for key in rows.iter().flat_map(|row| row.more.keys()) {
        if !extra.contains(&key.as_str()) && !HIDDEN.contains(&key.as_str()) {
            extra.push(key);
        }
    }
    extra.sort_by_key(|key| {
        ORDER
            .iter()
            .position(|known| known == key)
            .unwrap_or(ORDER.len())
    });
    let limit = rows.iter().find_map(|row| row.limit.as_ref());
    let ours = rows.iter().find(|row| row.is_ours());
    let mut titles = vec!["variant", "median", "min", "max", "n"];
    titles.extend(ours.map(|_| "against ours"));
    let against = limit.map(|limit| format!("against {}", limit.what));
    titles.extend(against.as_deref());
    let unit = |key: &'static str| move |title: &&str| title.strip_suffix(key).map(str::to_owned);
    let named: Vec<String> = extra
        .iter()
        .map(|key| {
            unit(" ns")(key)
                .or_else(|| unit(" KiB")(key))
                .unwrap_or_else(|| (*key).to_owned())
        })
        .collect();
    titles.extend(named.iter().map(String::as_str));
    titles.extend(["peak memory", "minor faults", "major faults"]);
    let mut text = format!(
        "\n### {case}\n\n| {} |\n|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for row in rows {
        let mut cells = vec![
            row.variant.clone(),
            time(row.median),
            time(row.minimum),
            time(row.maximum),
            row.n.to_string(),
        ];
        let ratio = |to: f64| {
            if to > 0.0 {
                times(row.median / to)
            } else {
                "–".to_owned()
            }
        };
        cells.extend(ours.map(|ours| ratio(ours.median)));
        cells.extend(limit.map(|_| {
            row.limit
                .as_ref()
                .map_or("–".to_owned(), |limit| ratio(limit.median))
        }));
        cells.extend(extra.iter().map(|key| {
            row.more
                .get(*key)
                .map_or("–".to_owned(), |value| cell(key, *value))
        }));
        cells.extend([
            memory(row.peak_kib as f64),
            row.minor_faults.to_string(),
            row.major_faults.to_string(),
        ]);
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cell(key: &str, value: f64) -> String {
    match key {
        key if key.ends_with(" ns") => time(value),
        key if key.ends_with(" KiB") => memory(value),
        _ if value.fract() == 0.0 => format!("{value}"),
        _ => format!("{value:.1}"),
    }
}

fn times(ratio: f64) -> String {
    if ratio < 100.0 {
        format!("{ratio:.2}×")
    } else {
        format!("{ratio:.0}×")
    }
}

pub fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.1} ns"),
        ..1e6 => format!("{:.2} µs", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

fn memory(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::machine::Run;
    use crate::results::{Limit, Missing};

    #[test]
    fn every_figure_stands_beside_ours_and_the_limit() {
        let row = |variant: &str, samples: &[f64]| Row {
            limit: Some(Limit {
                what: "dd".to_owned(),
                median: 5e6,
            }),
            peak_kib: 2048,
            more: [("first ns".to_owned(), 3e6), ("sum".to_owned(), 7.0)].into(),
            ..Row::new("file".to_owned(), variant.to_owned(), samples.to_vec())
        };
        let missing = Missing {
            case: "file".to_owned(),
            variant: "c".to_owned(),
            reason: "not installed".to_owned(),
        };
        let rows = vec![row("ours", &[1e7, 2e7, 3e7]), row("b", &[4e7])];
        let text = outcome(&Outcome {
            rows,
            missing: vec![missing],
            ..Outcome::default()
        });
        assert!(
            text.contains("| variant | median | min | max | n | against ours | against dd | first | peak memory |"),
            "{text}"
        );
        assert!(
            text.contains(
                "| ours | 20.00 ms | 10.00 ms | 30.00 ms | 3 | 1.00× | 4.00× | 3.00 ms | 2.0 MiB |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| b | 40.00 ms | 40.00 ms | 40.00 ms | 1 | 2.00× | 8.00× |"),
            "{text}"
        );
        assert!(
            text.contains("- not there: c (file): not installed"),
            "{text}"
        );
    }

    #[test]
    fn a_brief_line_has_the_fastest_of_ours_and_two_peers() {
        let row = |variant: &str, median: f64| {
            Row::new("file".to_owned(), variant.to_owned(), vec![median])
        };
        let rows = vec![
            row("ours, slowly", 2e7),
            row("ours", 1e7),
            row("b", 4e7),
            row("c", 3e7),
            row("limit: d", 1e6),
        ];
        let found = Outcome {
            rows,
            ..Outcome::default()
        };
        let section = Section {
            section: "s".to_owned(),
            run: Run::default(),
            found,
        };
        let text = brief(&section);
        assert!(
            text.ends_with("| file | **10.00 ms** | c: 30.00 ms (3.00×) | b: 40.00 ms (4.00×) |\n"),
            "{text}"
        );
    }
}
