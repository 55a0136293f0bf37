//! Decoding speeds: a line for each type and output, a column for each variant.

use std::fmt::Write;

use super::{Outcome, Row, median};

/// The key of rows that belong here: how many elements a sample's call decodes.
pub const ELEMENTS: &str = "elements";
/// The key that marks a variant which makes its output's memory itself.
pub const FRESH: &str = "fresh";

/// Elements per nanosecond.
pub fn speed(row: &Row) -> f64 {
    row.more
        .get(ELEMENTS)
        .map_or(0.0, |elements| elements / row.median)
}

/// The rows that are speeds, as one table; nothing if there are none.
pub fn tables(found: &Outcome) -> String {
    let rows: Vec<&Row> = found
        .rows
        .iter()
        .filter(|row| row.more.contains_key(ELEMENTS))
        .collect();
    let mut variants: Vec<&str> = Vec::new();
    for row in &rows {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
    }
    // what the machine can do stands last
    variants.sort_by_key(|variant| rows.iter().any(|row| is_limit(row, variant)));
    let Some(rounds) = rounds(&rows) else {
        return String::new();
    };
    if is_of_ours(found) {
        return compact(found, &variants, &rounds);
    }
    let mut text = format!(
        "\n10⁹ elements/s, one thread, median of {rounds} processes' best; `*` returns fresh memory.\n"
    );
    let limit = rows
        .iter()
        .find_map(|row| Some(row.limit.as_ref()?.what.as_str()))
        .unwrap_or("memcpy");
    let columns = variants.join(" | ");
    let _ = write!(
        text,
        "\n| type | output | {columns} | ours / best peer | of the least | ours / {limit} |\n"
    );
    let _ = writeln!(
        text,
        "|---|---|{}---|---|---|",
        "---|".repeat(variants.len())
    );
    for case in found.cases() {
        let mine: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.case == case)
            .collect();
        if !mine.iter().any(|row| !is_limit(row, &row.variant)) {
            continue; // nobody decodes it
        }
        let of = |variant: &str| mine.iter().find(|row| row.variant == variant);
        let cells: Vec<String> = variants
            .iter()
            .map(|variant| of(variant).map_or("–".to_owned(), |row| shown(row)))
            .collect();
        let ours = mine.iter().find(|row| row.is_ours());
        let peers = || {
            mine.iter()
                .filter(|row| !row.is_ours() && !is_limit(row, &row.variant))
        };
        // how much faster, round by round, and by the least of each
        let times =
            |times: Option<f64>| times.map_or("–".to_owned(), |times| format!("{times:.2}×"));
        let pairs = |row: &Row| ours.map(|ours| in_pairs(ours, row));
        let best = times(peers().copied().filter_map(pairs).min_by(f64::total_cmp));
        let least = |row: &Row| ours.map(|ours| row.minimum / ours.minimum);
        let least = times(peers().copied().filter_map(least).min_by(f64::total_cmp));
        let copy = times(of(limit).copied().and_then(pairs));
        let (name, output) = case.rsplit_once(' ').unwrap_or((case, ""));
        let _ = writeln!(
            text,
            "| {name} | {output} | {} | {best} | {least} | {copy} |",
            cells.join(" | ")
        );
    }
    text
}

/// How much longer another takes than ours: the median over rounds, in each of which both ran within seconds, so that a clock
/// which is quick now and slow then is so for both.
fn in_pairs(ours: &Row, other: &Row) -> f64 {
    let mut times: Vec<f64> = ours
        .samples
        .iter()
        .zip(&other.samples)
        .map(|(ours, other)| other / ours)
        .collect();
    median(&mut times)
}

/// How many processes a median is of.
fn rounds(rows: &[&Row]) -> Option<String> {
    let (least, most) = (
        rows.iter().map(|row| row.n).min()?,
        rows.iter().map(|row| row.n).max()?,
    );
    Some(if least == most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    })
}

/// Whether these are speeds of ours alone, and of what bounds them, which is a case by its own name.
pub fn is_of_ours(found: &Outcome) -> bool {
    let of_ours = |row: &Row| {
        row.is_ours()
            || row
                .case
                .rsplit_once(' ')
                .is_some_and(|(name, _)| name == row.variant)
    };
    found
        .rows
        .iter()
        .all(|row| row.more.contains_key(ELEMENTS) && of_ours(row))
}

/// A line for each type, all outputs in one cell.
fn compact(found: &Outcome, variants: &[&str], rounds: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut outputs: Vec<&str> = Vec::new();
    for (name, output) in found
        .cases()
        .iter()
        .filter_map(|case| case.rsplit_once(' '))
    {
        names.extend((!names.contains(&name)).then_some(name));
        outputs.extend((!outputs.contains(&output)).then_some(output));
    }
    let ours: Vec<&str> = variants
        .iter()
        .copied()
        .filter(|variant| variant.starts_with("ours"))
        .collect();
    let titles: Vec<&str> = ours
        .iter()
        .map(|variant| variant.strip_prefix("ours, ").unwrap_or(variant))
        .collect();
    let mut text = format!(
        "\n10⁹ elements/s to {}, one thread, median of {rounds} processes' best.\n\n| type | {} |\n|---|{}\n",
        outputs.join(" / "),
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for name in names {
        let figure = |variant: &str, output: &str| {
            let case = format!("{name} {output}");
            // what bounds all is the same beside each
            let row = found
                .rows
                .iter()
                .find(|row| row.case == case && [variant, name].contains(&&*row.variant));
            row.map_or("–".to_owned(), |row| format!("{:.1}", speed(row)))
        };
        let cell = |variant: &&str| {
            outputs
                .iter()
                .map(|output| figure(variant, output))
                .collect::<Vec<_>>()
                .join(" / ")
        };
        let _ = writeln!(
            text,
            "| {name} | {} |",
            ours.iter().map(cell).collect::<Vec<_>>().join(" | ")
        );
    }
    text
}

fn is_limit(row: &Row, variant: &str) -> bool {
    row.limit
        .as_ref()
        .is_some_and(|limit| limit.what == variant)
}

fn shown(row: &Row) -> String {
    let fresh = if row.more.get(FRESH).is_some_and(|fresh| *fresh > 0.0) {
        "*"
    } else {
        ""
    };
    format!("{:.2}{fresh}", speed(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Limit;

    #[test]
    fn a_line_has_all_variants_and_the_best_peer() {
        let row = |variant: &str, ns: f64| Row {
            more: [
                (ELEMENTS.to_owned(), 60.0),
                (FRESH.to_owned(), f64::from(u8::from(variant == "peer"))),
            ]
            .into(),
            limit: Some(Limit {
                what: "memcpy".to_owned(),
                median: 2.0,
            }),
            ..Row::new("Q4_0 BF16".to_owned(), variant.to_owned(), vec![ns])
        };
        let rows = vec![
            row("ours", 5.0),
            row("memcpy", 2.0),
            row("peer", 20.0),
            row("ggml C", 10.0),
        ];
        let text = tables(&Outcome {
            rows,
            ..Outcome::default()
        });
        assert!(
            text.contains(
                "| type | output | ours | peer | ggml C | memcpy | ours / best peer | of the least | ours / memcpy |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| Q4_0 | BF16 | 12.00 | 3.00* | 6.00 | 30.00 | 2.00× | 2.00× | 0.40× |"),
            "{text}"
        );
    }

    #[test]
    fn ours_alone_have_all_outputs_in_a_cell() {
        let row = |case: &str, variant: &str, ns: f64| Row {
            more: [(ELEMENTS.to_owned(), 60.0)].into(),
            ..Row::new(case.to_owned(), variant.to_owned(), vec![ns])
        };
        let mut rows = vec![
            row("memcpy BF16", "memcpy", 2.0),
            row("memcpy F32", "memcpy", 4.0),
        ];
        rows.extend([
            row("Q4_0 BF16", "ours, baseline", 30.0),
            row("Q4_0 BF16", "ours, avx2", 5.0),
        ]);
        rows.extend([
            row("Q4_0 F32", "ours, baseline", 60.0),
            row("Q4_0 F32", "ours, avx2", 8.0),
        ]);
        let text = tables(&Outcome {
            rows,
            ..Outcome::default()
        });
        assert!(
            text.contains("elements/s to BF16 / F32, one thread, median of 1 processes' best.\n"),
            "{text}"
        );
        let table = "| type | baseline | avx2 |\n|---|---|---|\n| memcpy | 30.0 / 15.0 | 30.0 / 15.0 |\n\
                     | Q4_0 | 2.0 / 1.0 | 12.0 / 7.5 |\n";
        assert!(text.ends_with(table), "{text}");
    }
}
