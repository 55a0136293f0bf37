//! Findings about a model, from opening it or from a check of its bytes.

use anamnesis::Summary;
use anamnesis::check::{CheckReport, FindingLevel};
use anamnesis::quote::escape;
use serde::Serialize;

use crate::check::finding_text;
use crate::output::tensors::name;
use crate::text::shortened;

use super::shown_names::ShownNames;

/// Characters of a message, and of a name.
const MAX_MESSAGE: usize = 600;
const MAX_NAME: usize = 240;

/// Something that was found about a model.
#[derive(Debug, Serialize)]
pub(super) struct ReportFinding {
    level: &'static str,
    rule: Option<&'static str>,
    message: String,
    tensor: Option<String>,
    /// The number of the tensor in the page.
    row: Option<u32>,
    file: Option<String>,
    remedy: Option<&'static str>,
}

impl ReportFinding {
    /// A finding of opening.
    fn new(
        level: FindingLevel,
        message: &str,
        tensor: Option<&str>,
        names: &ShownNames<'_>,
    ) -> Self {
        Self {
            level: level.name(),
            rule: None,
            message: shortened(&escape(message), MAX_MESSAGE),
            tensor: tensor.map(|tensor| shortened(&name(tensor), MAX_NAME)),
            row: tensor.and_then(|tensor| names.tensor(tensor)),
            file: None,
            remedy: None,
        }
    }
}

/// Findings of opening: warnings, entries that cannot be read, weights that cannot be dequantised.
pub(super) fn of_opening(
    summary: &Summary,
    names: &ShownNames<'_>,
) -> impl Iterator<Item = ReportFinding> {
    use FindingLevel::{Error, Warning};

    let refused = summary.refused.iter();
    let refused = refused.map(|row| ReportFinding::new(Error, &row.reason, Some(&row.name), names));
    let weights = summary.weights.iter().filter_map(|weight| {
        let reason = weight.refused.as_deref()?;
        Some(ReportFinding::new(
            Warning,
            reason,
            Some(&weight.name),
            names,
        ))
    });
    // the most severe first, since rows beyond the limit are only counted
    refused.chain(warnings(summary, names)).chain(weights)
}

/// Findings of a check, and the warnings of opening. A check names each entry and weight that cannot be read. A remedy is
/// shown once.
pub(super) fn of_check(
    report: &CheckReport,
    summary: &Summary,
    names: &ShownNames<'_>,
) -> impl Iterator<Item = ReportFinding> {
    let mut remedies = Vec::new();
    let checked = report.findings.iter().map(move |finding| {
        // a note needs no remedy
        let remedy = finding
            .remedy
            .filter(|_| finding.level > FindingLevel::Note);
        let remedy = remedy.filter(|remedy| !remedies.contains(remedy));
        remedies.extend(remedy);
        let (tensor, file) = (finding.tensor.as_deref(), finding.file.as_deref());
        ReportFinding {
            level: finding.level.name(),
            rule: Some(finding.rule),
            message: shortened(&finding_text(finding), MAX_MESSAGE),
            tensor: tensor.map(|tensor| shortened(&name(tensor), MAX_NAME)),
            row: tensor.and_then(|tensor| names.tensor(tensor)),
            file: file.map(|file| shortened(&escape(file), MAX_NAME)),
            remedy,
        }
    });
    checked.chain(warnings(summary, names))
}

fn warnings(summary: &Summary, names: &ShownNames<'_>) -> impl Iterator<Item = ReportFinding> {
    let texts = summary.warnings.iter();
    texts.map(|text| ReportFinding::new(FindingLevel::Warning, text, None, names))
}
