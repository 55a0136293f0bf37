//! Decoding speeds: a line for each type and output, a column for each variant.

use std::fmt::Write;

use super::{Outcome, Row};

/// The key of rows that belong here: how many elements a sample's call decodes.
pub const ELEMENTS: &str = "elements";
/// The key that marks a variant which makes its output's memory itself.
pub const FRESH: &str = "fresh";

/// Elements per nanosecond.
pub fn speed(row: &Row) -> f64 {
    row.more.get(ELEMENTS).map_or(0.0, |elements| elements / row.median)
}

/// The rows that are speeds, as one table; nothing if there are none.
pub fn tables(found: &Outcome) -> String {
    let rows: Vec<&Row> = found.rows.iter().filter(|row| row.more.contains_key(ELEMENTS)).collect();
    let mut variants: Vec<&str> = Vec::new();
    for row in &rows {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
    }
    // what the machine can do stands last
    variants.sort_by_key(|variant| rows.iter().any(|row| is_limit(row, variant)));
    let Some(most) = rows.iter().map(|row| row.n).max() else { return String::new() };
    let mut text =
        format!("\n10⁹ elements/s, one thread, median of {most} processes' best; `*` returns fresh memory.\n");
    let limit = rows.iter().find_map(|row| Some(row.limit.as_ref()?.what.as_str())).unwrap_or("memcpy");
    let columns = variants.join(" | ");
    let _ = write!(text, "\n| type | output | {columns} | ours / best peer | ours / {limit} |\n");
    let _ = writeln!(text, "|---|---|{}---|---|", "---|".repeat(variants.len()));
    for case in found.cases() {
        let mine: Vec<&&Row> = rows.iter().filter(|row| row.case == case).collect();
        if !mine.iter().any(|row| !is_limit(row, &row.variant)) {
            continue; // nobody decodes it
        }
        let of = |variant: &str| mine.iter().find(|row| row.variant == variant);
        let cells: Vec<String> =
            variants.iter().map(|variant| of(variant).map_or("–".to_owned(), |row| shown(row))).collect();
        let ours = mine.iter().find(|row| row.is_ours()).map(|row| speed(row));
        let peers = mine.iter().filter(|row| !row.is_ours() && !is_limit(row, &row.variant)).map(|row| speed(row));
        let ratio = |to: Option<f64>| ours.zip(to).map_or("–".to_owned(), |(ours, to)| format!("{:.2}×", ours / to));
        let (best, copy) = (peers.max_by(f64::total_cmp), of(limit).map(|row| speed(row)));
        let (name, output) = case.rsplit_once(' ').unwrap_or((case, ""));
        let _ = writeln!(text, "| {name} | {output} | {} | {} | {} |", cells.join(" | "), ratio(best), ratio(copy));
    }
    text
}

fn is_limit(row: &Row, variant: &str) -> bool {
    row.limit.as_ref().is_some_and(|limit| limit.what == variant)
}

fn shown(row: &Row) -> String {
    let fresh = if row.more.get(FRESH).is_some_and(|fresh| *fresh > 0.0) { "*" } else { "" };
    format!("{:.2}{fresh}", speed(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Limit;

    #[test]
    fn a_line_has_all_variants_and_the_best_peer() {
        let row = |variant: &str, ns: f64| Row {
            more: [(ELEMENTS.to_owned(), 60.0), (FRESH.to_owned(), f64::from(u8::from(variant == "peer")))].into(),
            limit: Some(Limit { what: "memcpy".to_owned(), median: 2.0 }),
            ..Row::new("Q4_0 BF16".to_owned(), variant.to_owned(), vec![ns])
        };
        let rows = vec![row("ours", 5.0), row("memcpy", 2.0), row("peer", 20.0), row("ggml C", 10.0)];
        let text = tables(&Outcome { rows, ..Outcome::default() });
        assert!(
            text.contains("| type | output | ours | peer | ggml C | memcpy | ours / best peer | ours / memcpy |"),
            "{text}"
        );
        assert!(text.contains("| Q4_0 | BF16 | 12.00 | 3.00* | 6.00 | 30.00 | 2.00× | 0.40× |"), "{text}");
    }
}
