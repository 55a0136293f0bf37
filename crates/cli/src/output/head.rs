//! The block above the tensors: what the checkpoint is and what it amounts to.

use std::fmt::Display;
use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::inspect::Totals;
use serde_json::{Map, Value as Json};

use super::table::{Column, Table};
use super::text::{Bytes, Count, Exact, clean, cut_middle, plural, width};
use super::{BOLD, DIM, DTYPE, REFUSED, Screen, WARNING};

/// Files that are named one by one.
const FILES: usize = 8;
const INDENT: usize = 2;
const LABEL: usize = 13;

pub(crate) fn show(
    summary: &Summary,
    listed: usize,
    filtered: bool,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", screen.paint(BOLD, title(summary)))?;
    let mut facts = Facts(summary.details.clone());
    let mut field = |label: &str, value: Option<String>| match value {
        Some(value) => {
            let label = format!("{label:LABEL$}");
            writeln!(out, "{:INDENT$}{} {value}", "", screen.paint(DIM, label))
        }
        None => Ok(()),
    };
    field("format", Some(format(summary, &mut facts)))?;
    field("architecture", architecture(&mut facts))?;
    field(
        "context",
        facts.take("context_length", |n| format!("{n} tokens")),
    )?;
    field("tokenizer", tokenizer(&mut facts))?;
    field("file type", file_type(summary, &mut facts))?;
    field("split", split(summary, &mut facts))?;
    for (key, value) in &facts.0 {
        match (key.strip_suffix("_nbytes"), value.as_u64()) {
            (Some(key), Some(n)) => field(&label(key), Some(format!("{}", Bytes(n))))?,
            _ => field(&label(key), Some(plain(value)))?,
        }
    }
    for (i, line) in files(summary, screen).into_iter().enumerate() {
        let label = if summary.files.len() == 1 {
            "file"
        } else {
            "files"
        };
        field(if i == 0 { label } else { "" }, Some(line))?;
    }
    field(
        "metadata",
        (!summary.metadata.is_empty()).then(|| plural(summary.metadata.len() as u64, "key")),
    )?;
    let totals = &summary.totals;
    field("tensors", Some(tensors(totals, listed, filtered)))?;
    if totals.tensors > 0 {
        let bits = totals
            .bits_per_weight
            .map_or(String::new(), |b| format!(", {b:.2} bits per weight"));
        field("bytes", Some(format!("{}{bits}", size(totals.nbytes))))?;
    }
    field("weights", weights(summary))?;
    dtypes(totals, screen, out)
}

/// The quantised weights: how many, of which schemes, and what they take once they are brought back.
fn weights(summary: &Summary) -> Option<String> {
    let remembered = summary.remembered.as_ref()?;
    let mut schemes: Vec<(&str, u64)> = Vec::new();
    for weight in &summary.weights {
        let scheme = weight.scheme.unwrap_or("refused");
        match schemes.iter_mut().find(|(name, _)| *name == scheme) {
            Some((_, n)) => *n += 1,
            None => schemes.push((scheme, 1)),
        }
    }
    let schemes: Vec<String> = schemes
        .iter()
        .map(|(name, n)| format!("{} {name}", Exact(*n)))
        .collect();
    let (narrow, wide) = (Bytes(remembered.bf16_nbytes), Bytes(remembered.f32_nbytes));
    Some(format!(
        "{}; all is {narrow} as BF16 or F16, {wide} as F32",
        schemes.join(", ")
    ))
}

/// Refusals and warnings, below everything else.
pub(crate) fn remarks(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    let refused = summary.weights.iter().any(|w| w.refused.is_some());
    if refused || !summary.refused.is_empty() || !summary.warnings.is_empty() {
        writeln!(out)?;
    }
    for refused in &summary.refused {
        let text = format!("{}: {}", clean(&refused.name), clean(&refused.reason));
        writeln!(
            out,
            "{} {}",
            screen.paint(REFUSED, "refused:"),
            wrapped(&text, screen)
        )?;
    }
    for weight in summary
        .weights
        .iter()
        .filter(|w| w.refused.is_some())
        .take(FILES)
    {
        let text = clean(weight.refused.as_deref().unwrap_or_default()).into_owned();
        writeln!(
            out,
            "{} {}",
            screen.paint(REFUSED, "weights:"),
            wrapped(&text, screen)
        )?;
    }
    for warning in &summary.warnings {
        writeln!(
            out,
            "{} {}",
            screen.paint(WARNING, "warning:"),
            wrapped(&clean(warning), screen)
        )?;
    }
    Ok(())
}

/// A text behind a word of eight letters, broken between words.
fn wrapped(text: &str, screen: &Screen) -> String {
    const INDENT: usize = 9;
    let Some(room) = screen.width.map(|width| width.saturating_sub(INDENT)) else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len() + 64);
    let mut used = 0;
    for word in text.split(' ') {
        let width = width(word);
        if used > 0 && used + 1 + width > room {
            out.push_str(&format!("\n{:INDENT$}", ""));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// The path, or what stands for it.
pub(crate) fn title(summary: &Summary) -> String {
    summary
        .path
        .as_deref()
        .map_or("standard input".into(), |path| clean(path).into_owned())
}

/// The container's facts that have not been shown yet.
struct Facts(Map<String, Json>);

impl Facts {
    fn take<T>(&mut self, key: &str, show: impl FnOnce(String) -> T) -> Option<T> {
        self.0.shift_remove(key).map(|value| show(plain(&value)))
    }
}

fn format(summary: &Summary, facts: &mut Facts) -> String {
    let mut text = summary.format.to_owned();
    text.extend(facts.take("version", |v| format!(" version {v}")));
    text.extend(facts.take("container", |c| format!(", {c} container")));
    for key in ["endian", "byteorder"] {
        text.extend(facts.take(key, |e| format!(", {e} endian")));
    }
    text.extend(facts.take("protocol", |p| format!(", pickle protocol {p}")));
    text.extend(facts.take("alignment", |a| format!(", aligned to {a} bytes")));
    text.extend(facts.take("order", |o| {
        format!(", {} order", if o == "c" { "C" } else { "Fortran" })
    }));
    let mut count = |key: &str| facts.0.shift_remove(key).and_then(|n| n.as_u64());
    let (members, deflated) = (count("members"), count("deflated"));
    for (n, what) in [(members, "member"), (count("storages"), "storage")] {
        text.extend(n.map(|n| format!(", {}", plural(n, what))));
    }
    text.extend(
        deflated
            .filter(|n| *n > 0)
            .map(|n| format!(", {} deflated", Exact(n))),
    );
    let header = facts
        .0
        .shift_remove("header_nbytes")
        .and_then(|n| n.as_u64());
    // that of the first file says nothing of several
    let header = header.filter(|_| summary.files.len() == 1);
    text.extend(header.map(|n| format!(", header of {}", Bytes(n))));
    text
}

fn architecture(facts: &mut Facts) -> Option<String> {
    let mut parts: Vec<String> = facts.take("architecture", |a| a).into_iter().collect();
    parts.extend(facts.take("name", |n| format!("“{n}”")));
    parts.extend(facts.take("size_label", |s| s));
    parts.extend(facts.take("blocks", |n| format!("{n} blocks")));
    parts.extend(facts.take("embedding", |n| format!("embedding {n}")));
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn tokenizer(facts: &mut Facts) -> Option<String> {
    let mut text = facts.take("tokenizer", |t| t);
    let pre = facts.take("pre_tokenizer", |p| format!(" ({p})"));
    let vocabulary = facts.0.shift_remove("vocabulary").and_then(|n| n.as_u64());
    if let Some(text) = &mut text {
        text.extend(pre);
    }
    let vocabulary = vocabulary.map(|n| plural(n, "token"));
    match (text, vocabulary) {
        (Some(text), Some(tokens)) => Some(format!("{text}, {tokens}")),
        (text, tokens) => text.or(tokens),
    }
}

fn file_type(summary: &Summary, facts: &mut Facts) -> Option<String> {
    let kind = facts.take("file_type", |t| t);
    let version = summary
        .metadata
        .get("general.quantization_version")
        .map(plain);
    match (kind, version) {
        (Some(kind), Some(version)) => Some(format!("{kind}, quantisation version {version}")),
        (kind, _) => kind,
    }
}

fn split(summary: &Summary, facts: &mut Facts) -> Option<String> {
    let no = facts.0.shift_remove("split_no")?.as_u64()?;
    let count = facts.0.shift_remove("split_count")?.as_u64()?;
    match summary.files.len() {
        _ if count <= 1 => None,
        1 => Some(format!("part {} of {count}", no.saturating_add(1))),
        _ => Some(format!("{count} parts")),
    }
}

fn files(summary: &Summary, screen: &Screen) -> Vec<String> {
    let total = size(summary.totals.file_nbytes);
    let files = &summary.files;
    if let [only] = files.as_slice() {
        // the title names it already, unless a directory or an index was opened
        let path = only
            .path
            .as_deref()
            .filter(|path| Some(*path) != summary.path.as_deref());
        return vec![path.map_or(total.clone(), |path| {
            format!("{}, {total}", clean(file_name(Some(path))))
        })];
    }
    let mut lines = vec![format!("{}, {total}", files.len())];
    let room = screen
        .width
        .unwrap_or(usize::MAX)
        .saturating_sub(INDENT + LABEL + 1 + 12);
    for file in files.iter().take(FILES) {
        let mut line = format!("{:>10}  ", Bytes(file.nbytes).to_string());
        cut_middle(
            &mut line,
            &clean(file_name(file.path.as_deref())),
            room.max(16),
            0,
        );
        lines.push(line);
    }
    if files.len() > FILES {
        lines.push(format!("{:>10}  … and {} more", "", files.len() - FILES));
    }
    lines
}

/// The last part of a path.
pub(crate) fn file_name(path: Option<&str>) -> &str {
    path.map_or("", |path| {
        path.rsplit(['/', std::path::MAIN_SEPARATOR])
            .next()
            .unwrap_or(path)
    })
}

fn tensors(totals: &Totals, listed: usize, filtered: bool) -> String {
    let mut text = Exact(totals.tensors).to_string();
    if filtered {
        text.push_str(&format!(" of {} pass the filter", Exact(listed as u64)));
    }
    if totals.tensors > 0 {
        text.push_str(&format!(", {} weights", Count(totals.elements)));
    }
    if let [only] = totals.by_dtype.as_slice() {
        text.push_str(&format!(
            ", {}{}",
            if totals.tensors > 1 { "all " } else { "" },
            clean(&only.dtype)
        ));
    }
    text
}

fn dtypes(totals: &Totals, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    if totals.by_dtype.len() < 2 {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left("dtype").style(DTYPE),
        Column::right("tensors"),
        Column::right("weights"),
        Column::right("bytes"),
        Column::right("share"),
    ];
    let mut table = Table::new(columns, INDENT);
    for row in &totals.by_dtype {
        table.cell(clean(&row.dtype));
        table.cell(Exact(row.tensors));
        table.cell(Count(row.elements));
        table.cell(Bytes(row.nbytes));
        let share = if totals.nbytes == 0 {
            0.0
        } else {
            row.nbytes as f64 * 100.0 / totals.nbytes as f64
        };
        table.cell(format_args!("{share:.1} %"));
    }
    table.print(screen, out)
}

/// In units, and exactly where units round.
fn size(n: u64) -> String {
    if n < 1024 {
        Bytes(n).to_string()
    } else {
        format!("{} ({} bytes)", Bytes(n), Exact(n))
    }
}

fn label(key: &str) -> String {
    clean(key).replace('_', " ")
}

/// A value in a line of text.
pub(crate) fn plain(value: &Json) -> String {
    let text: &dyn Display = match value {
        Json::String(text) => &clean(text),
        other => other,
    };
    text.to_string()
}
