//! Tables of dequantisation speeds: a line for each type and output dtype, a column for each variant.

use std::fmt::Write;

use super::{Outcome, ResultRow, median};

/// The key that marks a row as a speed: the number of elements that one call decodes.
pub const ELEMENTS: &str = "elements";
/// The key that marks a variant that allocates its output.
const ALLOCATES: &str = "allocates";

/// Elements per nanosecond.
fn speed(row: &ResultRow) -> f64 {
    row.more
        .get(ELEMENTS)
        .map_or(0.0, |elements| elements / row.median)
}

/// The rows that are speeds as one table; empty if there are none.
pub fn tables(outcome: &Outcome) -> String {
    let rows: Vec<&ResultRow> = outcome
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
    // the limit is the last column
    variants.sort_by_key(|variant| rows.iter().any(|row| is_limit(row, variant)));
    let Some(rounds) = rounds(&rows) else {
        return String::new();
    };
    if is_only_ours(outcome) {
        return compact(outcome, &variants, &rounds);
    }
    let mut text = format!(
        "\n10⁹ elements/s, one thread, median over {rounds} processes of the fastest call of each; `*` allocates its output.\n"
    );
    let limit = rows
        .iter()
        .find_map(|row| Some(row.limit.as_ref()?.what.as_str()))
        .unwrap_or("memcpy");
    let columns = variants.join(" | ");
    let _ = write!(
        text,
        "\n| type | output | {columns} | ours ÷ best peer | ratio of fastest | ours ÷ {limit} |\n"
    );
    let _ = writeln!(
        text,
        "|---|---|{}---|---|---|",
        "---|".repeat(variants.len())
    );
    for case in outcome.cases() {
        let in_case: Vec<&ResultRow> = rows
            .iter()
            .copied()
            .filter(|row| row.case == case)
            .collect();
        if !in_case.iter().any(|row| !is_limit(row, &row.variant)) {
            continue; // no variant decodes it
        }
        let of = |variant: &str| in_case.iter().find(|row| row.variant == variant);
        let cells: Vec<String> = variants
            .iter()
            .map(|variant| of(variant).map_or("–".to_owned(), |row| speed_cell(row)))
            .collect();
        let ours = in_case.iter().find(|row| row.is_ours());
        let peers = || {
            in_case
                .iter()
                .filter(|row| !row.is_ours() && !is_limit(row, &row.variant))
        };
        // speed-up over the best peer: median over pairs of rounds, then the ratio of the fastest processes
        let times =
            |times: Option<f64>| times.map_or("–".to_owned(), |times| format!("{times:.2}×"));
        let paired = |row: &ResultRow| ours.map(|ours| paired_ratio(ours, row));
        let best = times(peers().copied().filter_map(paired).min_by(f64::total_cmp));
        let fastest = |row: &ResultRow| ours.map(|ours| row.minimum / ours.minimum);
        let fastest = times(peers().copied().filter_map(fastest).min_by(f64::total_cmp));
        let copy = times(of(limit).copied().and_then(paired));
        let (name, output) = case.rsplit_once(' ').unwrap_or((case, ""));
        let _ = writeln!(
            text,
            "| {name} | {output} | {} | {best} | {fastest} | {copy} |",
            cells.join(" | ")
        );
    }
    text
}

/// Time of `other` divided by ours: the median over rounds. Both processes of a round run within seconds of each other, so a
/// change of the processor's clock speed affects both.
fn paired_ratio(ours: &ResultRow, other: &ResultRow) -> f64 {
    let mut times: Vec<f64> = ours
        .samples
        .iter()
        .zip(&other.samples)
        .map(|(ours, other)| other / ours)
        .collect();
    median(&mut times)
}

/// The number of processes per median, or its range.
fn rounds(rows: &[&ResultRow]) -> Option<String> {
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

/// Whether all rows are speeds of ours, or of the limit, which is then a case of its own.
fn is_only_ours(outcome: &Outcome) -> bool {
    let is_ours = |row: &ResultRow| {
        row.is_ours()
            || row
                .case
                .rsplit_once(' ')
                .is_some_and(|(name, _)| name == row.variant)
    };
    outcome
        .rows
        .iter()
        .all(|row| row.more.contains_key(ELEMENTS) && is_ours(row))
}

/// One line for each type, with the speeds to all output dtypes in one cell.
fn compact(outcome: &Outcome, variants: &[&str], rounds: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut outputs: Vec<&str> = Vec::new();
    for (name, output) in outcome
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
        "\n10⁹ elements/s to {}, one thread, median over {rounds} processes of the fastest call of each.\n\n| type | {} |\n|---|{}\n",
        outputs.join(" / "),
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for name in names {
        let figure = |variant: &str, output: &str| {
            let case = format!("{name} {output}");
            // the limit has one variant, shown in every column
            let row = outcome
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

fn is_limit(row: &ResultRow, variant: &str) -> bool {
    row.limit
        .as_ref()
        .is_some_and(|limit| limit.what == variant)
}

fn speed_cell(row: &ResultRow) -> String {
    let star = if row
        .more
        .get(ALLOCATES)
        .is_some_and(|allocates| *allocates > 0.0)
    {
        "*"
    } else {
        ""
    };
    format!("{:.2}{star}", speed(row))
}

#[cfg(test)]
mod tests {
    use super::super::Limit;
    use super::*;

    #[test]
    fn a_line_has_all_variants_and_the_best_peer() {
        let row = |variant: &str, ns: f64| ResultRow {
            more: [
                (ELEMENTS.to_owned(), 60.0),
                (ALLOCATES.to_owned(), f64::from(u8::from(variant == "peer"))),
            ]
            .into(),
            limit: Some(Limit {
                what: "memcpy".to_owned(),
                median: 2.0,
            }),
            ..ResultRow::new("Q4_0 BF16".to_owned(), variant.to_owned(), vec![ns])
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
                "| type | output | ours | peer | ggml C | memcpy | ours ÷ best peer | ratio of fastest | ours ÷ memcpy |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| Q4_0 | BF16 | 12.00 | 3.00* | 6.00 | 30.00 | 2.00× | 2.00× | 0.40× |"),
            "{text}"
        );
    }

    #[test]
    fn our_speeds_alone_have_all_outputs_in_a_cell() {
        let row = |case: &str, variant: &str, ns: f64| ResultRow {
            more: [(ELEMENTS.to_owned(), 60.0)].into(),
            ..ResultRow::new(case.to_owned(), variant.to_owned(), vec![ns])
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
            text.contains("elements/s to BF16 / F32, one thread, median over 1 processes of the fastest call of each.\n"),
            "{text}"
        );
        let table = "| type | baseline | avx2 |\n|---|---|---|\n| memcpy | 30.0 / 15.0 | 30.0 / 15.0 |\n\
                     | Q4_0 | 2.0 / 1.0 | 12.0 / 7.5 |\n";
        assert!(text.ends_with(table), "{text}");
    }
}
