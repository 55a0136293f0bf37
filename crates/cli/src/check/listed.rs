//! The findings that are listed. A file can have a finding for each of its tensors, and a line for each says no more than the
//! first thousand and a count.

use anamnesis::check::{CheckReport, Finding};
use serde::Serialize;
use serde_json::{Value, json};

/// Findings of one rule that are listed.
const MOST: u64 = 1000;

/// The findings of a rule that are not listed.
#[derive(Debug, Serialize)]
pub(super) struct OmittedFindings {
    pub(super) rule: &'static str,
    pub(super) count: u64,
}

/// Takes out the findings of each rule beyond the first [`MOST`], and counts them. The counts of the report stay.
pub(super) fn cut(report: &mut CheckReport) -> Vec<OmittedFindings> {
    // a rule of the table each, so that a search through them is short
    let mut rules: Vec<OmittedFindings> = Vec::new();
    report.findings.retain(|Finding { rule, .. }| {
        let known = rules.iter_mut().position(|row| row.rule == *rule);
        let row = known.unwrap_or_else(|| {
            rules.push(OmittedFindings { rule, count: 0 });
            rules.len() - 1
        });
        rules[row].count += 1;
        rules[row].count <= MOST
    });
    rules.retain(|row| row.count > MOST);
    rules.iter_mut().for_each(|row| row.count -= MOST);
    rules
}

/// The report as JSON, with the counts of what is not listed.
pub(super) fn document(
    report: &CheckReport,
    omitted: &[OmittedFindings],
) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(report)?;
    if !omitted.is_empty() {
        document["omitted"] = json!(omitted);
    }
    Ok(document)
}
