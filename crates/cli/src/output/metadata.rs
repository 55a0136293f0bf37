//! Keys and values beside the tensors: all of them shortened, or one of them whole.

use std::io::{self, Write};

use anamnesis::inspect::to_json;
use anamnesis::{Summary, Value};
use serde_json::Value as Json;

use super::table::{Column, Fit, Table};
use super::text::{Exact, clean, clean_lines, cut_end};
use super::{BOLD, Screen, head};

/// A text is cut here where the screen does not cut it before.
const TEXT: usize = 160;

pub(crate) fn list(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    if summary.metadata.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left("key").fit(Fit::Middle(48)),
        Column::left("value").fit(Fit::End),
    ];
    let mut table = Table::new(columns, 0);
    for (key, value) in &summary.metadata {
        table.cell(clean(key));
        table.cell(short(value));
    }
    table.print(screen, out)
}

/// A value in at most one line.
fn short(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::String(text) => {
            // escaping all of a long text only to cut it would be a waste
            let front: String = text.chars().take(TEXT + 1).collect();
            cut_end(&mut out, &clean(&front), TEXT);
        }
        Json::Array(items) => out = sequence(items, ""),
        Json::Object(array) => match (array.get("first"), array.get("len"), array.get("type")) {
            (Some(Json::Array(first)), Some(len), Some(Json::String(item))) => {
                let len = len
                    .as_u64()
                    .map_or_else(|| len.to_string(), |n| Exact(n).to_string());
                out = format!("{len} × {item} {}", sequence(first, ", …"));
            }
            _ => cut_end(&mut out, &clean(&value.to_string()), TEXT),
        },
        other => out = other.to_string(),
    }
    out
}

fn sequence(items: &[Json], more: &str) -> String {
    let shown: Vec<String> = items
        .iter()
        .map(|item| match item {
            Json::String(_) => format!("\"{}\"", short(item)),
            _ => short(item),
        })
        .collect();
    format!("[{}{more}]", shown.join(", "))
}

/// Whose value follows, where there are several.
pub(crate) fn of(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, format_args!("==> {} <==", head::title(summary)))
    )
}

/// One value, whole: a text as it is (on a terminal, escaped where it would command it), an array
/// with one element per line.
pub(crate) fn whole(value: &Value, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    match value {
        Value::Text(text) if screen.terminal => writeln!(out, "{}", clean_lines(text)),
        Value::Text(text) => writeln!(out, "{text}"),
        Value::List(items) => items.iter().try_for_each(|item| match item {
            Value::Text(text) => writeln!(out, "{}", clean(text)),
            other => writeln!(out, "{}", to_json(other)),
        }),
        other => writeln!(out, "{}", head::plain(&to_json(other))),
    }
}
