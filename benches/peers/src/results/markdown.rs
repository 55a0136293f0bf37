//! Results as Markdown tables.

use std::fmt::Write;

use super::{Outcome, ResultRow, SectionResults, speeds};

/// Keys of `ResultRow::more` that are not shown: `sum` only serves to compare the variants.
const HIDDEN: &[&str] = &["sum", speeds::ELEMENTS];
/// Order of the columns made from `ResultRow::more`; others follow by name.
const COLUMN_ORDER: &[&str] = &[
    "first load ns",
    "load ns",
    "files",
    "fastest ns",
    "p25 ns",
    "p75 ns",
    "slowest ns",
    "CPU time ns",
    "faults",
];

/// A block of a document. `form` is `brief`, `summary`, `summary PREFIX; PREFIX…`, `variants`, or prefixes of cases for their full tables.
pub fn block(section: &SectionResults, form: &str) -> String {
    let prefixes = |form: &str| -> Vec<String> {
        let prefixes = form.split(';').map(|prefix| prefix.trim().to_owned());
        prefixes.filter(|prefix| !prefix.is_empty()).collect()
    };
    let text = match form.strip_prefix("summary") {
        Some(rest) => brief(&of_cases(section, &prefixes(rest)), true),
        None if form == "brief" => brief(section, false),
        None if form == "variants" => variants(section),
        None => self::section(section, &prefixes(form)),
    };
    // one level below the heading that the block is under
    text.replace("\n### ", "\n#### ")
}

/// The section with those cases alone whose names begin with one of the prefixes; all of it without prefixes.
fn of_cases(section: &SectionResults, prefixes: &[String]) -> SectionResults {
    let mut shown = section.clone();
    if !prefixes.is_empty() {
        let is_shown = |case: &str| prefixes.iter().any(|prefix| case.starts_with(prefix));
        shown.outcome.rows.retain(|row| is_shown(&row.case));
        shown.outcome.missing.clear();
        shown.outcome.notes.clear();
    }
    shown
}

/// A section's provenance and full tables; if prefixes are given, only of the cases whose names begin with one of them,
/// without notes and missing variants.
pub fn section(section: &SectionResults, prefixes: &[String]) -> String {
    let shown = of_cases(section, prefixes);
    format!("{}.\n{}", shown.run.line(), outcome(&shown.outcome))
}

/// Prefixes of variants that are no peers: limits of the machine, and hand-written code.
const NOT_PEERS: &[&str] = &[
    "limit: ",
    "whole file: ",
    "a Vec per tensor",
    "our pool",
    "zeropool",
];

/// One line for each case: ours, the fastest and the slowest peer. With `detailed` every variant of `OURS_SHOWN` that the
/// section has gets a column of its own, and so does the limit of the machine; else ours is the fastest of our variants.
pub fn brief(section: &SectionResults, detailed: bool) -> String {
    // date, commit and machine; the full form has the versions
    let provenance = section
        .run
        .line()
        .split(" · ")
        .take(2)
        .collect::<Vec<_>>()
        .join(" · ");
    let rows = &section.outcome.rows;
    let mut ours_shown: Vec<&str> = OURS_SHOWN
        .iter()
        .copied()
        .filter(|name| detailed && rows.iter().any(|row| row.variant == *name))
        .collect();
    if ours_shown.is_empty() {
        ours_shown.push("ours");
    }
    let has_limit = detailed && rows.iter().any(|row| row.limit.is_some());
    let limit_title = if has_limit {
        " limit of the machine |"
    } else {
        ""
    };
    let columns = ours_shown.len() + 3 + usize::from(has_limit);
    let mut text = format!(
        "{provenance}.\n\n| case | {} |{limit_title} fastest peer | slowest peer |\n|{}\n",
        ours_shown.join(" | "),
        "---|".repeat(columns)
    );
    for case in section.outcome.cases() {
        let mut rows = section.outcome.of(case);
        rows.sort_by(|a, b| a.median.total_cmp(&b.median));
        let Some(fastest) = rows.iter().find(|row| row.is_ours()) else {
            continue;
        };
        let named = |name: &&str| rows.iter().find(|row| row.variant == *name);
        let cells: Vec<String> = match &ours_shown[..] {
            ["ours"] => vec![format!("**{}**", time(fastest.median))],
            names => names
                .iter()
                .map(|name| named(name).map_or("–".to_owned(), |row| time(row.median)))
                .collect(),
        };
        let against = |what: &str, median: f64| {
            let what = what.strip_prefix("limit: ").unwrap_or(what);
            format!(
                "{what}: {} ({})",
                time(median),
                times(median / fastest.median)
            )
        };
        let limit = rows.iter().find_map(|row| row.limit.as_ref());
        let limit = limit.map_or("–".to_owned(), |l| against(&l.what, l.median));
        let limit = if has_limit {
            format!(" {limit} |")
        } else {
            String::new()
        };
        let is_peer = |row: &&&ResultRow| {
            !row.is_ours() && !NOT_PEERS.iter().any(|no| row.variant.starts_with(no))
        };
        let peer = |row: &&ResultRow| against(&row.variant, row.median);
        let mut peers = rows.iter().filter(is_peer);
        let (first, last) = (peers.next().map(peer), peers.next_back().map(peer));
        let [first, last] = [first, last].map(|peer| peer.unwrap_or_else(|| "–".to_owned()));
        let _ = writeln!(
            text,
            "| {case} | {} |{limit} {first} | {last} |",
            cells.join(" | ")
        );
    }
    text
}

/// One line for each variant of each case: time, its ratio to the limit of the machine, and memory.
fn variants(section: &SectionResults) -> String {
    let limit = section.outcome.rows.iter().find_map(|r| r.limit.as_ref());
    let limit = limit.map_or("the limit", |limit| &limit.what);
    let mut text = format!(
        "{}.\n\n| case | variant | median | ÷ {limit} | CPU time | anonymous memory | peak memory |\n|{}\n",
        section.run.line(),
        "---|".repeat(7)
    );
    for case in section.outcome.cases() {
        for (i, row) in section.outcome.of(case).into_iter().enumerate() {
            let ratio = row.limit.as_ref().map(|l| times(row.median / l.median));
            let more = |key: &str| row.more.get(key).map(|value| cell(key, *value));
            let cells = [
                Some(if i == 0 { case } else { "" }.to_owned()),
                Some(row.variant.clone()),
                Some(time(row.median)),
                ratio,
                more("CPU time ns"),
                more("anonymous KiB"),
                Some(memory(row.peak_kib as f64)),
            ];
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

/// Our variants that have a column of their own in the detailed form.
const OURS_SHOWN: &[&str] = &["ours, owned", "ours, borrowed"];

/// Full tables of all cases, then notes and missing variants.
pub fn outcome(outcome: &Outcome) -> String {
    let mut text = speeds::tables(outcome);
    for case in outcome.cases() {
        let rows = outcome.of(case);
        if !rows[0].more.contains_key(speeds::ELEMENTS) {
            text += &table(case, &rows);
        }
    }
    let missing = outcome
        .missing
        .iter()
        .map(|m| format!("- not measured: {} ({}): {}", m.variant, m.case, m.reason));
    let notes = outcome.notes.iter().map(|note| format!("- {note}"));
    let list: Vec<String> = notes.chain(missing).collect();
    if !list.is_empty() {
        let _ = write!(text, "\n{}\n", list.join("\n"));
    }
    text
}

fn table(case: &str, rows: &[&ResultRow]) -> String {
    let mut extra: Vec<&str> = Vec::new();
    for key in rows.iter().flat_map(|row| row.more.keys()) {
        if !extra.contains(&key.as_str()) && !HIDDEN.contains(&key.as_str()) {
            extra.push(key);
        }
    }
    extra.sort_by_key(|key| {
        COLUMN_ORDER
            .iter()
            .position(|known| known == key)
            .unwrap_or(COLUMN_ORDER.len())
    });
    let limit = rows.iter().find_map(|row| row.limit.as_ref());
    let ours = rows.iter().find(|row| row.is_ours());
    let mut titles = vec!["variant", "median", "min", "max", "n"];
    titles.extend(ours.map(|_| "÷ ours"));
    let against_limit = limit.map(|limit| format!("÷ {}", limit.what));
    titles.extend(against_limit.as_deref());
    let without_unit = |key: &&str| {
        [" ns", " KiB"]
            .iter()
            .find_map(|unit| key.strip_suffix(unit))
            .unwrap_or(key)
            .to_owned()
    };
    let extra_titles: Vec<String> = extra.iter().map(without_unit).collect();
    titles.extend(extra_titles.iter().map(String::as_str));
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

/// A figure of `ResultRow::more` in the unit of its key.
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

fn time(ns: f64) -> String {
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
    use super::super::provenance::Provenance;
    use super::super::{Limit, Missing};
    use super::*;

    #[test]
    fn a_row_is_compared_with_ours_and_with_the_limit() {
        let row = |variant: &str, samples: &[f64]| ResultRow {
            limit: Some(Limit {
                what: "dd".to_owned(),
                median: 5e6,
            }),
            peak_kib: 2048,
            more: [("first load ns".to_owned(), 3e6), ("sum".to_owned(), 7.0)].into(),
            ..ResultRow::new("file".to_owned(), variant.to_owned(), samples.to_vec())
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
            text.contains(
                "| variant | median | min | max | n | ÷ ours | ÷ dd | first load | peak memory |"
            ),
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
            text.contains("- not measured: c (file): not installed"),
            "{text}"
        );
    }

    #[test]
    fn a_brief_line_has_ours_and_two_peers() {
        let row = |variant: &str, median: f64| ResultRow {
            limit: Some(Limit {
                what: "limit: d".to_owned(),
                median: 1e6,
            }),
            ..ResultRow::new("file".to_owned(), variant.to_owned(), vec![median])
        };
        let rows = vec![
            row("ours, borrowed", 1e7),
            row("ours, owned", 2e7),
            row("b", 4e7),
            row("c", 3e7),
            row("limit: d", 1e6),
        ];
        let outcome = Outcome {
            rows,
            ..Outcome::default()
        };
        let section = SectionResults {
            section: "s".to_owned(),
            run: Provenance::default(),
            outcome,
        };
        let text = brief(&section, false);
        assert!(
            text.ends_with("| file | **10.00 ms** | c: 30.00 ms (3.00×) | b: 40.00 ms (4.00×) |\n"),
            "{text}"
        );
        let text = brief(&section, true);
        assert!(
            text.ends_with(
                "| case | ours, owned | ours, borrowed | limit of the machine | fastest peer | slowest peer |\n\
                 |---|---|---|---|---|---|\n\
                 | file | 20.00 ms | 10.00 ms | d: 1.00 ms (0.10×) | c: 30.00 ms (3.00×) | b: 40.00 ms (4.00×) |\n"
            ),
            "{text}"
        );
    }
}
