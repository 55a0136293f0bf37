//! The views of `inspect --metadata`: all keys with shortened values, or one value in full.

use std::io::{self, Write};

use anamnesis::quote::escape;
use anamnesis::{Summary, Value};
use serde_json::Value as Json;

use super::table::{Column, ColumnFit, Table};
use super::{BOLD, Screen, overview};
use crate::text::{ExactCount, cut_end, escape_lines};

/// Maximum length of a string in the list, in columns; a narrow screen shortens it further.
const MAX_STRING: usize = 160;

/// The table of all keys and shortened values.
pub(crate) fn list(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    if summary.metadata.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left("key").fit(ColumnFit::Middle(48)),
        Column::left("value").fit(ColumnFit::End),
    ];
    let mut table = Table::new(columns, 0);
    for (key, value) in overview::json_object(&summary.metadata) {
        table.cell(escape(&key));
        table.cell(short(&value));
    }
    table.print(screen, out)
}

/// A value on one line, shortened.
pub(crate) fn short(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::String(text) => {
            // cut before escaping: a chat template or vocabulary can be megabytes long
            let front: String = text.chars().take(MAX_STRING + 1).collect();
            cut_end(&mut out, &escape(&front), MAX_STRING);
        }
        Json::Array(items) => out = sequence(items, ""),
        Json::Object(array) => match (array.get("first"), array.get("len"), array.get("type")) {
            (Some(Json::Array(first)), Some(len), Some(Json::String(item))) => {
                let len = len
                    .as_u64()
                    .map_or_else(|| len.to_string(), |n| ExactCount(n).to_string());
                out = format!("{len} × {item} {}", sequence(first, ", …"));
            }
            _ => cut_end(&mut out, &escape(&value.to_string()), MAX_STRING),
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

/// The heading above a value when several inputs are shown.
pub(crate) fn heading(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, format_args!("==> {} <==", overview::title(summary)))
    )
}

/// One value in full: a string unchanged (on a terminal, with control characters escaped), an array with one element
/// per line.
pub(crate) fn value(value: &Value, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    match value {
        // elsewhere the text is printed as it is: a chat template is piped to programs that need its bytes
        Value::Text(text) if screen.terminal => writeln!(out, "{}", escape_lines(text)),
        Value::Text(text) => writeln!(out, "{text}"),
        Value::List(items) => items.iter().try_for_each(|item| match item {
            Value::Text(text) => writeln!(out, "{}", escape(text)),
            other => writeln!(out, "{}", overview::json_text(&overview::json(other))),
        }),
        other => writeln!(out, "{}", overview::json_text(&overview::json(other))),
    }
}
