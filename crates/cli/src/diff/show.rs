//! The text of `diff`: both sides, the counts, the tensors that differ, configuration and metadata.

use std::io::{self, Write};

use anamnesis::diff::{DiffSide, DifferenceKind, Differences, TensorDifference};
use anamnesis::quote::escape;
use serde_json::{Map, Value};

use crate::args::DiffArgs;
use crate::output::coverage;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{BOLD, DIM, DTYPE, Screen, WARNING};
use crate::text::{ExactCount, plural, wrap};

/// Tensors that are listed without `--all`.
const LISTED: usize = 20;

/// Columns of a letter and the space behind it.
const INDENT: usize = 3;

pub(super) fn differences(
    found: &Differences,
    args: &DiffArgs,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    for (letter, side) in [("A", &found.a), ("B", &found.b)] {
        let letter = screen.paint(BOLD, letter);
        let text = wrap(&described(side), screen.width, INDENT);
        writeln!(out, "{letter}  {text}")?;
    }
    for line in summary(found) {
        writeln!(out, "   {}", wrap(&line, screen.width, INDENT))?;
    }
    for (letter, side) in [("A", &found.a), ("B", &found.b)] {
        let tensors = (side.compared, side.tensors);
        let counted = coverage::counted(tensors, (side.files, side.of_files));
        let lines = [counted]
            .into_iter()
            .chain(coverage::unread_lines(&side.unread));
        for line in lines {
            let text = wrap(&format!("{letter}: {line}"), screen.width, INDENT + 3);
            writeln!(out, "   {text}")?;
        }
    }
    if !args.stat {
        let decides_by_value = args.values || args.nmse.is_some() || args.max_abs.is_some();
        let rows: Vec<&TensorDifference> = found
            .tensors
            .iter()
            .filter(|row| args.all || is_listed(row, decides_by_value))
            .collect();
        tensors(&rows, args.all, screen, out)?;
    }
    if let Some(config) = found.config.as_ref().filter(|config| !config.is_empty()) {
        writeln!(out, "\n{}", screen.paint(BOLD, "config.json"))?;
        let mut table = entries();
        for (letter, entries) in [("A", &config.added), ("D", &config.removed)] {
            for (key, value) in entries {
                entry(&mut table, letter, key, value, letter == "A");
            }
        }
        changed(&mut table, &config.changed);
        table.print(screen, out)?;
    }
    let metadata = &found.metadata;
    if args.metadata && !metadata.is_empty() {
        writeln!(out, "\n{}", screen.paint(BOLD, "metadata"))?;
        let mut table = entries();
        for (letter, keys) in [("A", &metadata.added), ("D", &metadata.removed)] {
            for key in keys {
                entry(&mut table, letter, key, &Value::Null, letter == "A");
            }
        }
        changed(&mut table, &metadata.changed);
        table.print(screen, out)?;
    }
    if !found.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &found.notes {
        let text = wrap(&escape(note), screen.width, "note: ".len());
        writeln!(out, "{} {text}", screen.paint(WARNING, "note:"))?;
    }
    Ok(())
}

/// `qwen2/  27 tensors, BF16`.
fn described(side: &DiffSide) -> String {
    // a quantised GGUF has up to a dozen, and the most frequent come first
    const DTYPES: usize = 4;
    let path = side.path.as_deref().unwrap_or("standard input");
    let mut parts = vec![plural(side.tensors, "tensor")];
    parts.extend(
        side.dtypes
            .iter()
            .take(DTYPES)
            .map(|name| escape(name).into_owned()),
    );
    if side.dtypes.len() > DTYPES {
        parts.push("…".to_owned());
    }
    format!("{}  {}", escape(path), parts.join(", "))
}

/// The verdict and the counts, a line each.
fn summary(found: &Differences) -> Vec<String> {
    let mut lines = Vec::new();
    let by_scheme = found.tensors.iter().filter(|row| row.by_scheme);
    let (equal, others): (Vec<_>, Vec<_>) =
        by_scheme.partition(|row| row.equal_values == Some(true));
    let schemes = (equal.len() + others.len()) as u64;
    let counts = &found.counts;
    let all_equal = |kind: DifferenceKind| {
        let mut rows = found.tensors.iter().filter(|row| row.kind == kind);
        rows.all(|row| row.equal_values == Some(true))
    };
    let parts = [
        (
            counts.equal,
            if found.headers {
                "with equal headers"
            } else {
                "equal"
            },
            false,
        ),
        (
            counts.changed,
            "changed",
            all_equal(DifferenceKind::Changed),
        ),
        (
            counts.retyped,
            "retyped",
            all_equal(DifferenceKind::Retyped),
        ),
        (counts.reshaped, "reshaped", false),
        // pairs that a scheme explains have a count of their own: their names differ between formats by convention
        (counts.renamed - schemes, "renamed", false),
        (counts.added, "added", false),
        (counts.removed, "removed", false),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, name, equal)| {
        let equal = if equal { " with equal values" } else { "" };
        format!("{} {name}{equal}", ExactCount(count))
    });
    let by_scheme = (schemes > 0).then(|| {
        format!(
            "names differ by scheme ({} equal in value, {} changed)",
            ExactCount(equal.len() as u64),
            ExactCount(others.len() as u64)
        )
    });
    let config = found.config.as_ref().filter(|config| !config.is_empty());
    let config = config.map(|_| "config.json differs".to_owned());
    let parts: Vec<String> = by_scheme.into_iter().chain(parts).chain(config).collect();
    let verdict = found.verdict;
    match parts.is_empty() {
        true => lines.push(verdict.to_owned()),
        false => lines.push(format!("{verdict}: {}", parts.join(", "))),
    }
    if let Some(max) = found.total.max_abs {
        let nmse = found.total.nmse.map_or("–".to_owned(), distance);
        lines.push(format!("total  nmse {nmse}  max |a-b| {}", distance(max)));
    }
    let metadata = &found.metadata;
    if !metadata.is_empty() {
        let counts = [
            (metadata.changed.len(), "changed"),
            (metadata.added.len(), "added"),
            (metadata.removed.len(), "removed"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, name)| format!("{} {name}", ExactCount(*count as u64)));
        let counts = counts.collect::<Vec<_>>().join(", ");
        lines.push(format!("metadata: {counts}"));
    }
    lines
}

/// Whether a tensor is listed without `--all`.
fn is_listed(row: &TensorDifference, decides_by_value: bool) -> bool {
    // with values in question, tensors that are equal within the tolerance are no news
    if decides_by_value {
        return row.decides;
    }
    // a name that only the other format's convention changes, with equal values, is no difference to a reader
    row.kind != DifferenceKind::Equal && !(row.by_scheme && row.equal_values == Some(true))
}

/// The letter of a kind, as git has them.
fn letter(row: &TensorDifference) -> &'static str {
    match row.kind {
        DifferenceKind::Added => "A",
        DifferenceKind::Removed => "D",
        // the new name is the format's, and the values differ: to a reader the tensor was changed
        DifferenceKind::Renamed if row.by_scheme && row.equal_values != Some(true) => "M",
        DifferenceKind::Renamed => "R",
        DifferenceKind::Reshaped => "S",
        DifferenceKind::Retyped => "T",
        DifferenceKind::Changed => "M",
        DifferenceKind::Equal => "",
    }
}

fn tensors(
    rows: &[&TensorDifference],
    all: bool,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left(" ").style(BOLD),
        Column::left("tensor").fit(ColumnFit::Middle(40)),
        Column::left("A").style(DTYPE),
        Column::left("B").style(DTYPE),
        Column::right("differing"),
        Column::left("first"),
        Column::right("nmse"),
        Column::right("max |a-b|"),
        Column::left("note").fit(ColumnFit::Below),
    ];
    let mut table = Table::new(columns, 0);
    let shown = if all {
        rows.len()
    } else {
        rows.len().min(LISTED)
    };
    for row in &rows[..shown] {
        table.cell(letter(row));
        table.cell(name(row));
        table.cell(stored(row, row.a_dtype.as_deref(), row.a_shape.as_deref()));
        table.cell(stored(row, row.b_dtype.as_deref(), row.b_shape.as_deref()));
        let count = row.differing.filter(|count| *count > 0);
        table.cell(count.map_or(String::new(), |count| ExactCount(count).to_string()));
        table.cell(row.first.as_deref().map_or(String::new(), sizes));
        table.cell(row.nmse.map_or(String::new(), distance));
        table.cell(row.max_abs.map_or(String::new(), distance));
        table.cell(
            row.note
                .as_deref()
                .map_or(String::new(), |note| escape(note).into_owned()),
        );
    }
    table.print(screen, out)?;
    if shown < rows.len() {
        let more = ExactCount((rows.len() - shown) as u64);
        writeln!(
            out,
            "   {}",
            screen.paint(DIM, format!("… {more} more (--all)"))
        )?;
    }
    Ok(())
}

/// `7.60e-6`, or `0`.
fn distance(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    format!("{value:.2e}")
}

/// Its name; of one with two names that no scheme explains, both.
fn name(row: &TensorDifference) -> String {
    match (&row.a, &row.b) {
        // one name suffices where the other follows from it
        (Some(a), Some(b)) if a != b && !row.by_scheme => {
            format!("{} → {}", escape(a), escape(b))
        }
        (Some(name), _) | (None, Some(name)) => escape(name).into_owned(),
        (None, None) => String::new(),
    }
}

/// Its type, with its sizes where the other side has others.
fn stored(row: &TensorDifference, dtype: Option<&str>, shape: Option<&[u64]>) -> String {
    let dtype = dtype.map(escape).unwrap_or_default();
    match shape.filter(|_| row.a_shape != row.b_shape) {
        // equal shapes say nothing about a difference and would fill the line
        Some(shape) => format!("{dtype} {}", sizes(shape)),
        None => dtype.into_owned(),
    }
}

/// `[3,5]`.
fn sizes(sizes: &[u64]) -> String {
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    format!("[{}]", sizes.join(","))
}

/// A table of entries of a configuration or of metadata.
fn entries() -> Table {
    let columns = vec![
        Column::left(" ").style(BOLD),
        Column::left("key").fit(ColumnFit::Middle(40)),
        Column::left("A").fit(ColumnFit::End),
        Column::left("B").fit(ColumnFit::End),
    ];
    Table::new(columns, 0)
}

fn entry(table: &mut Table, letter: &str, key: &str, value: &Value, in_b: bool) {
    table.cell(letter);
    table.cell(escape(key));
    let text = if value.is_null() {
        String::new()
    } else {
        short(value)
    };
    table.cell(if in_b { "" } else { &text });
    table.cell(if in_b { &text } else { "" });
}

fn changed(table: &mut Table, entries: &Map<String, Value>) {
    for (key, pair) in entries {
        table.cell("M");
        table.cell(escape(key));
        for side in 0..2 {
            table.cell(pair.get(side).map_or(String::new(), short));
        }
    }
}

/// A value on one line, shortened.
fn short(value: &Value) -> String {
    const LONGEST: usize = 80;
    // cut before it is escaped, since a value may be a list of 100,000 tokens; one more than fits, so that the cut is
    // shown
    let text: String = value.to_string().chars().take(LONGEST + 1).collect();
    let mut out = String::new();
    crate::text::cut_end(&mut out, &escape(&text), LONGEST);
    out
}
