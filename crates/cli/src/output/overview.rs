//! The overview of a checkpoint, shown above its tensors: format, files, totals per dtype; and the warnings below them.

use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::catalog::{Metadata, Value};
use anamnesis::inspect::Totals;
use anamnesis::quote::escape;
use serde_json::{Map, Value as Json};

use super::table::{Column, Table};
use super::{BOLD, DIM, DTYPE, REFUSED, Screen, WARNING};
use crate::text::{ByteSize, ExactCount, ShortCount, cut_middle, plural, wrap};

/// Maximum number of files, and of refused weights, that are listed.
const MAX_LISTED: usize = 8;
/// Indentation of the fields.
const INDENT: usize = 2;
/// Width of a field's label.
const LABEL_WIDTH: usize = 13;

/// Writes the overview. `unfiltered_count` is the number of tensors before the filter.
pub(crate) fn show(
    summary: &Summary,
    unfiltered_count: usize,
    filtered: bool,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", screen.paint(BOLD, title(summary)))?;
    let mut details = RemainingDetails(json_object(&summary.details));
    let mut field = |label: &str, value: Option<String>| match value {
        Some(value) => {
            let label = format!("{label:LABEL_WIDTH$}");
            writeln!(out, "{:INDENT$}{} {value}", "", screen.paint(DIM, label))
        }
        None => Ok(()),
    };
    field("format", Some(format(summary, &mut details)))?;
    field("architecture", architecture(summary, &mut details))?;
    let stated = details.take("context_length", |n| format!("{n} tokens"));
    let configured = || Some(format!("{} tokens", summary.context?));
    field("context", stated.or_else(configured))?;
    // where nothing says that they are a model, the line of tensors has as much
    let parameters = summary
        .parameters
        .filter(|_| summary.architecture.is_some());
    let parameters = parameters.map(|n| ShortCount(n).to_string());
    field("parameters", parameters)?;
    field("tokenizer", tokenizer(&mut details))?;
    field("file type", file_type(summary, &mut details))?;
    field("split", split(summary, &mut details))?;
    // details that this command does not know are shown as well, so that a new format needs no change here
    for (key, value) in &details.0 {
        match (key.strip_suffix("_nbytes"), value.as_u64()) {
            (Some(key), Some(n)) => field(&label(key), Some(format!("{}", ByteSize(n))))?,
            _ => field(&label(key), Some(json_text(value)))?,
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
    field("tensors", Some(tensors(totals, unfiltered_count, filtered)))?;
    if totals.tensors > 0 {
        let bits = totals
            .bits_per_weight
            .map_or(String::new(), |b| format!(", {b:.2} bits per weight"));
        field("bytes", Some(format!("{}{bits}", size(totals.nbytes))))?;
    }
    field("weights", weights(summary))?;
    dtypes(totals, screen, out)
}

/// The quantised weights: their number per scheme, and the size of the whole checkpoint once dequantised.
fn weights(summary: &Summary) -> Option<String> {
    let dequantised = summary.dequantised.as_ref()?;
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
        .map(|(name, n)| format!("{} {name}", ExactCount(*n)))
        .collect();
    let (narrow, wide) = (
        ByteSize(dequantised.bf16_nbytes),
        ByteSize(dequantised.f32_nbytes),
    );
    Some(format!(
        "{}; dequantised: {narrow} (BF16, F16), {wide} (F32)",
        schemes.join(", ")
    ))
}

/// Writes what was refused and the warnings.
pub(crate) fn warnings(summary: &Summary, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    let refused = summary.weights.iter().any(|w| w.refused.is_some());
    if refused || !summary.refused.is_empty() || !summary.warnings.is_empty() {
        writeln!(out)?;
    }
    for refused in &summary.refused {
        let text = format!("{}: {}", escape(&refused.name), escape(&refused.reason));
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
        .take(MAX_LISTED)
    {
        let text = escape(weight.refused.as_deref().unwrap_or_default()).into_owned();
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
            wrapped(&escape(warning), screen)
        )?;
    }
    Ok(())
}

/// Text wrapped at spaces, with continuation lines indented by the width of `refused: ` and `warning: `.
fn wrapped(text: &str, screen: &Screen) -> String {
    const INDENT: usize = 9;
    wrap(text, screen.width, INDENT)
}

/// The path as it was given; `standard input` without one.
pub(crate) fn title(summary: &Summary) -> String {
    summary
        .path
        .as_deref()
        .map_or("standard input".into(), |path| escape(path).into_owned())
}

/// The format's details that have not been shown yet. Details that remain at the end are shown under their own names.
struct RemainingDetails(Map<String, Json>);

impl RemainingDetails {
    fn take<T>(&mut self, key: &str, show: impl FnOnce(String) -> T) -> Option<T> {
        // `shift_remove` keeps the order of the details that remain, which are shown
        self.0
            .shift_remove(key)
            .map(|value| show(json_text(&value)))
    }
}

fn format(summary: &Summary, details: &mut RemainingDetails) -> String {
    let mut text = summary.format.to_owned();
    text.extend(details.take("version", |v| format!(" version {v}")));
    text.extend(details.take("container", |c| format!(", {c} container")));
    // GGUF and PyTorch name the same fact differently
    for key in ["endian", "byteorder"] {
        text.extend(details.take(key, |e| format!(", {e} endian")));
    }
    text.extend(details.take("protocol", |p| format!(", pickle protocol {p}")));
    text.extend(details.take("alignment", |a| format!(", aligned to {a} bytes")));
    text.extend(details.take("order", |o| {
        format!(", {} order", if o == "c" { "C" } else { "Fortran" })
    }));
    let mut count = |key: &str| details.0.shift_remove(key).and_then(|n| n.as_u64());
    let (members, deflated) = (count("members"), count("deflated"));
    for (n, what) in [(members, "member"), (count("storages"), "storage")] {
        text.extend(n.map(|n| format!(", {}", plural(n, what))));
    }
    text.extend(
        deflated
            .filter(|n| *n > 0)
            .map(|n| format!(", {} deflated", ExactCount(n))),
    );
    let header = details
        .0
        .shift_remove("header_nbytes")
        .and_then(|n| n.as_u64());
    // with several files, the detail is the header size of the first one only
    let header = header.filter(|_| summary.files.len() == 1);
    text.extend(header.map(|n| format!(", header of {}", ByteSize(n))));
    text
}

fn architecture(summary: &Summary, details: &mut RemainingDetails) -> Option<String> {
    let stated = details.take("architecture", |a| a);
    let configured = summary.architecture.as_deref();
    let configured = configured.map(|text| escape(text).into_owned());
    let mut parts: Vec<String> = stated.or(configured).into_iter().collect();
    parts.extend(details.take("name", |n| format!("“{n}”")));
    parts.extend(details.take("size_label", |s| s));
    parts.extend(details.take("blocks", |n| format!("{n} blocks")));
    parts.extend(details.take("embedding", |n| format!("embedding {n}")));
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn tokenizer(details: &mut RemainingDetails) -> Option<String> {
    let mut text = details.take("tokenizer", |t| t);
    let pre = details.take("pre_tokenizer", |p| format!(" ({p})"));
    let vocabulary = details
        .0
        .shift_remove("vocabulary")
        .and_then(|n| n.as_u64());
    if let Some(text) = &mut text {
        text.extend(pre);
    }
    let vocabulary = vocabulary.map(|n| plural(n, "token"));
    match (text, vocabulary) {
        (Some(text), Some(tokens)) => Some(format!("{text}, {tokens}")),
        (text, tokens) => text.or(tokens),
    }
}

fn file_type(summary: &Summary, details: &mut RemainingDetails) -> Option<String> {
    let kind = details.take("file_type", |t| t);
    let version = summary
        .metadata
        .get("general.quantization_version")
        .map(|version| json_text(&json(version)));
    match (kind, version) {
        (Some(kind), Some(version)) => Some(format!("{kind}, quantisation version {version}")),
        (kind, _) => kind,
    }
}

fn split(summary: &Summary, details: &mut RemainingDetails) -> Option<String> {
    let no = details.0.shift_remove("split_no")?.as_u64()?;
    let count = details.0.shift_remove("split_count")?.as_u64()?;
    match summary.files.len() {
        // converters write the keys of a split into single files too
        _ if count <= 1 => None,
        // the number is stored from 0 on, and file names count from 1; it comes from the file, so it may be the
        // greatest
        1 => Some(format!("part {} of {count}", no.saturating_add(1))),
        _ => Some(format!("{count} parts")),
    }
}

fn files(summary: &Summary, screen: &Screen) -> Vec<String> {
    let total = size(summary.totals.file_nbytes);
    let files = &summary.files;
    if let [only] = files.as_slice() {
        // the title is the path of the file, unless a directory or an index was opened
        let path = only
            .path
            .as_deref()
            .filter(|path| Some(*path) != summary.path.as_deref());
        return vec![path.map_or(total.clone(), |path| {
            format!("{}, {total}", escape(file_name(Some(path))))
        })];
    }
    let mut lines = vec![format!("{}, {total}", files.len())];
    let room = screen
        .width
        .unwrap_or(usize::MAX)
        // 10 columns of size and 2 spaces precede a name
        .saturating_sub(INDENT + LABEL_WIDTH + 1 + 12);
    for file in files.iter().take(MAX_LISTED) {
        let mut line = format!("{:>10}  ", ByteSize(file.nbytes).to_string());
        cut_middle(
            &mut line,
            &escape(file_name(file.path.as_deref())),
            // on a narrow screen a name exceeds the line before it is unreadable
            room.max(16),
            0,
        );
        lines.push(line);
    }
    if files.len() > MAX_LISTED {
        lines.push(format!(
            "{:>10}  … and {} more",
            "",
            files.len() - MAX_LISTED
        ));
    }
    lines
}

/// The last component of a path.
pub(crate) fn file_name(path: Option<&str>) -> &str {
    path.map_or("", |path| {
        // an index names its shards with `/` on every system
        path.rsplit(['/', std::path::MAIN_SEPARATOR])
            .next()
            .unwrap_or(path)
    })
}

fn tensors(totals: &Totals, unfiltered_count: usize, filtered: bool) -> String {
    let mut text = ExactCount(totals.tensors).to_string();
    if filtered {
        text.push_str(&format!(
            " of {} pass the filter",
            ExactCount(unfiltered_count as u64)
        ));
    }
    if totals.tensors > 0 {
        text.push_str(&format!(", {} elements", ShortCount(totals.elements)));
    }
    if let [only] = totals.by_dtype.as_slice() {
        text.push_str(&format!(
            ", {}{}",
            if totals.tensors > 1 { "all " } else { "" },
            escape(&only.dtype)
        ));
    }
    text
}

fn dtypes(totals: &Totals, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    // a single dtype stands in the line of tensors
    if totals.by_dtype.len() < 2 {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left("dtype").style(DTYPE),
        Column::right("tensors"),
        Column::right("elements"),
        Column::right("bytes"),
        Column::right("share"),
    ];
    let mut table = Table::new(columns, INDENT);
    for row in &totals.by_dtype {
        table.cell(escape(&row.dtype));
        table.cell(ExactCount(row.tensors));
        table.cell(ShortCount(row.elements));
        table.cell(ByteSize(row.nbytes));
        let share = if totals.nbytes == 0 {
            0.0
        } else {
            row.nbytes as f64 * 100.0 / totals.nbytes as f64
        };
        table.cell(format_args!("{share:.1} %"));
    }
    table.print(screen, out)
}

/// A size in binary units, followed by the exact number of bytes if the units round it.
fn size(n: u64) -> String {
    if n < 1024 {
        ByteSize(n).to_string()
    } else {
        format!("{} ({} bytes)", ByteSize(n), ExactCount(n))
    }
}

fn label(key: &str) -> String {
    escape(key).replace('_', " ")
}

/// A metadata value as `--json` prints it.
pub(crate) fn json(value: &Value) -> Json {
    serde_json::to_value(value).expect("strings and numbers serialise to JSON")
}

/// Metadata as `--json` prints it.
pub(crate) fn json_object(metadata: &Metadata) -> Map<String, Json> {
    let pairs = metadata.iter();
    pairs
        .map(|(key, value)| (key.to_owned(), json(value)))
        .collect()
}

/// A JSON value as text on one line: a string without quotes and escaped.
pub(crate) fn json_text(value: &Json) -> String {
    match value {
        Json::String(text) => escape(text).into_owned(),
        // JSON itself leaves DEL, C1 controls and changes of writing direction as they are
        other => escape(&other.to_string()).into_owned(),
    }
}
