//! The data of a page. Its size is bounded by the constants here and in `columns.rs`, whatever the file holds: what is left out
//! is counted, and the page says so.

use anamnesis::Summary;
use anamnesis::check::CheckReport;
use anamnesis::quote::escape;
use serde::Serialize;
use serde_json::Value as Json;

use super::columns::TensorColumns;
use super::findings::{self, ReportFinding};
use super::memory::MemoryCurves;
use super::shown_names::ShownNames;
use super::statistics::StatisticsColumns;
use crate::output::json;
use crate::output::{metadata, overview};
use crate::text::{cut_end, escape_lines, shortened};
use crate::version::version;

/// Rows of files, findings and metadata.
const MAX_ROWS: usize = 2000;
/// Characters of a path, of a value that is no text, and of a text; bytes of all values.
const MAX_PATH: usize = 240;
const MAX_SHORT: usize = 600;
const MAX_VALUE: usize = 20_000;
const MAX_VALUES: usize = 400_000;
/// Rows of dtypes.
const MAX_DTYPES: usize = 200;

/// The data of a page about one model.
#[derive(Debug, Serialize)]
pub(super) struct ReportDocument {
    version: u32,
    generator: String,
    path: Option<String>,
    format: &'static str,
    totals: ReportTotals,
    /// Bytes by dtype: dtype, tensors, elements, bytes.
    dtypes: Vec<(String, u64, u64, u64)>,
    /// Path and length.
    files: Vec<(String, u64)>,
    tensors: TensorColumns,
    memory: MemoryCurves,
    findings: Vec<ReportFinding>,
    /// Whether all bytes were checked.
    checked: bool,
    /// Whether some files or tensors could not be opened, so that sums are over the rest.
    partial: bool,
    statistics: Option<StatisticsColumns>,
    /// Key and value, of the container and of the file.
    metadata: Vec<(String, String)>,
    /// Rows that are not shown: of dtypes, files, findings and metadata.
    omitted: [usize; 4],
}

/// Sums over all tensors, also those that are not shown.
#[derive(Debug, Serialize)]
struct ReportTotals {
    tensors: u64,
    elements: u64,
    nbytes: u64,
    file_nbytes: u64,
    files: usize,
    /// Elements of the weights as they are after dequantisation; `None` if not all tensors are shown.
    weights: Option<u64>,
    /// Quantised weights.
    quantised: usize,
    /// Bytes after dequantisation to BF16.
    bf16_nbytes: Option<u64>,
}

impl ReportDocument {
    /// The document of a model and, if there was one, of the check of its bytes. `partial`: see the field.
    pub(super) fn new(
        summary: &Summary,
        memory: MemoryCurves,
        check: Option<&CheckReport>,
        partial: bool,
    ) -> Self {
        let totals = &summary.totals;
        let tensors = TensorColumns::new(summary);
        let names = ShownNames::new(summary, &tensors);
        let mut omitted = [0; 4];
        let dtypes = totals.by_dtype.iter().map(|row| {
            let dtype = shortened(&escape(&row.dtype), MAX_PATH);
            (dtype, row.tensors, row.elements, row.nbytes)
        });
        let files = summary.files.iter().map(|file| {
            let name = overview::file_name(file.path.as_deref());
            (shortened(&escape(name), MAX_PATH), file.nbytes)
        });
        let findings: Box<dyn Iterator<Item = ReportFinding>> = match check {
            Some(report) => Box::new(findings::of_check(report, summary, &names)),
            None => Box::new(findings::of_opening(summary, &names)),
        };
        let mut values = MAX_VALUES;
        let metadata = [&summary.details, &summary.metadata].map(overview::json_object);
        let metadata = metadata.into_iter().flatten().map(|(key, value)| {
            // one budget for all values: a file may have a million keys of moderate length
            let value = text(&value, MAX_VALUE.min(values));
            values = values.saturating_sub(value.len());
            (shortened(&escape(&key), MAX_PATH), value)
        });
        Self {
            version: json::VERSION,
            generator: format!("anamnesis {}", version()),
            path: summary
                .path
                .as_deref()
                .map(|path| shortened(&escape(path), MAX_PATH)),
            format: summary.format,
            totals: ReportTotals {
                tensors: totals.tensors,
                elements: totals.elements,
                nbytes: totals.nbytes,
                file_nbytes: totals.file_nbytes,
                files: summary.files.len(),
                // a sum over the shown ones alone would look like the model's
                weights: tensors.is_complete().then(|| tensors.weights()),
                quantised: summary.weights.len(),
                bf16_nbytes: summary.dequantised.map(|sizes| sizes.bf16_nbytes),
            },
            dtypes: bounded(dtypes, MAX_DTYPES, &mut omitted[0]),
            files: bounded(files, MAX_ROWS, &mut omitted[1]),
            findings: bounded(findings, MAX_ROWS, &mut omitted[2]),
            checked: check.is_some(),
            partial,
            statistics: check
                .filter(|report| report.tensors.iter().any(|tensor| tensor.values.is_some()))
                .map(|report| StatisticsColumns::new(report, &names)),
            metadata: bounded(metadata, MAX_ROWS, &mut omitted[3]),
            tensors,
            memory,
            omitted,
        }
    }

    /// Number of tensors that the page has no row for.
    pub(super) fn omitted_tensors(&self) -> u64 {
        self.tensors.omitted()
    }

    /// Number of tensors of the model.
    pub(super) fn tensors(&self) -> u64 {
        self.totals.tensors
    }
}

/// At most `most` rows; the rest is counted.
fn bounded<T>(rows: impl Iterator<Item = T>, most: usize, omitted: &mut usize) -> Vec<T> {
    let mut shown = Vec::new();
    let mut rows = rows;
    shown.extend(rows.by_ref().take(most));
    *omitted = rows.count();
    shown
}

/// A value of the metadata: a text with its lines, anything else on one line.
fn text(value: &Json, most: usize) -> String {
    match value {
        Json::String(text) => {
            // cut before escaping: a chat template can be megabytes long
            let front: String = text.chars().take(most + 1).collect();
            let mut out = String::new();
            cut_end(&mut out, &escape_lines(&front), most);
            out
        }
        other => shortened(&metadata::short(other), MAX_SHORT),
    }
}
