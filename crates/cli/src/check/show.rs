//! The text of `check`: findings by level, statistics, and a line that counts.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anamnesis::check::{CheckReport, CheckedModelFiles, Finding, FindingLevel};
use anamnesis::quote::escape;
use anstyle::Style;

use super::listed::OmittedFindings;
use crate::output::coverage;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{BOLD, DIM, REFUSED, Screen, WARNING};
use crate::text::{ByteSize, ExactCount, listed, plural, wrap};

/// Width of a level and the space behind it.
const LEVEL_WIDTH: usize = 9;
/// Least width of a rule's name and the space behind it.
const RULE_WIDTH: usize = 18;
/// Indentation of the second line of a long text.
const INDENT: usize = 2;
/// Models of a directory that are named.
const MODELS: usize = 32;
/// Width of a screen from which on percentiles are shown.
const WIDE: usize = 120;

pub(super) fn all(
    reports: &[CheckReport],
    omitted: &[Vec<OmittedFindings>],
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    for (i, (report, omitted)) in reports.iter().zip(omitted).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(report, omitted, screen, out)?;
    }
    Ok(())
}

fn one(
    report: &CheckReport,
    omitted: &[OmittedFindings],
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let path = report.path.as_deref();
    let title = path.map_or("standard input".into(), |path| escape(path).into_owned());
    let size = format!(
        "{}, {}",
        plural(report.files.len() as u64, "file"),
        ByteSize(report.nbytes)
    );
    writeln!(
        out,
        "{}  {size}{}",
        screen.paint(BOLD, title),
        speed(report, screen)
    )?;
    let rules = report.findings.iter().map(|finding| finding.rule.len() + 1);
    // one column for all findings: texts that begin below each other are easier to compare
    let rule_width = rules.fold(RULE_WIDTH, usize::max);
    for finding in &report.findings {
        line(finding, report.models.len() > 1, rule_width, screen, out)?;
    }
    for OmittedFindings { rule, count } in omitted {
        let more = format!("… {} more of {rule}", ExactCount(*count));
        writeln!(out, "{}", screen.paint(DIM, more))?;
    }
    remedies(report, screen, out)?;
    if report.tensors.iter().any(|tensor| tensor.values.is_some()) {
        writeln!(out)?;
        // without a terminal (a file, a pipe) there is no width to keep to
        let wide = screen.width.is_none_or(|width| width >= WIDE);
        statistics(report, wide).print(screen, out)?;
        writeln!(out)?;
    }
    let mut counts = Vec::new();
    for (count, what) in [
        (report.counts.error, "error"),
        (report.counts.warning, "warning"),
        (report.counts.note, "note"),
    ] {
        if count > 0 {
            counts.push(plural(count, what));
        }
    }
    let found = if counts.is_empty() {
        "nothing found".to_owned()
    } else {
        counts.join(", ")
    };
    writeln!(out, "{found}{}", verdict(report))?;
    for line in covered(report) {
        writeln!(out, "{}", wrap(&line, screen.width, INDENT))?;
    }
    Ok(())
}

/// The verdict about the model. Tensors are called sound only where all rules were applied to their bytes.
fn verdict(report: &CheckReport) -> String {
    let mut text = String::new();
    if let Some(why) = report.why_idle() {
        text.push_str(&format!("; nothing was looked at: {why}"));
    } else if report.is_empty() {
        text.push_str("; nothing was read");
    } else if report.headers {
        text.push_str(match report.readable && report.counts.error == 0 {
            true => "; headers are well-formed",
            false => "; headers alone were read",
        });
    } else if report.only.is_empty() {
        text.push_str(&format!("; {} sound", plural(report.sound, "tensor")));
    }
    if !report.only.is_empty() {
        text.push_str(&format!("; by {} alone", report.only.join(", ")));
    }
    if !report.allowed.is_empty() {
        text.push_str(&format!("; without {}", report.allowed.join(", ")));
    }
    if !report.readable {
        text.push_str("; not all of it could be read");
    }
    text
}

/// How much was looked at, and what was not used.
fn covered(report: &CheckReport) -> Vec<String> {
    let checked = report.checked;
    let tensors = (checked.tensors, checked.of_tensors);
    let mut lines = vec![coverage::counted(
        tensors,
        (checked.files, checked.of_files),
    )];
    if report.models.len() > 1 {
        let formats: BTreeSet<&str> = report.models.iter().map(|model| model.format).collect();
        let several = match formats.len() {
            1 => "models",
            _ => "models of several formats",
        };
        let named = listed(report.models.iter().map(model), MODELS, " (--json)");
        lines.push(format!("{} {several}: {named}", report.models.len()));
    }
    let (compared, files) = (report.compared_digests(), report.files.len() as u64);
    // without any digest there is nothing that a reader could expect
    if compared > 0 && compared < files {
        let (compared, files) = (ExactCount(compared), ExactCount(files));
        lines.push(format!("digests of {compared} of {files} files compared"));
    }
    lines.extend(coverage::unread_lines(&report.unread));
    for evidence in &report.evidence {
        if let Some(why) = &evidence.unused {
            let (path, why) = (escape(&evidence.path), escape(why));
            lines.push(match evidence.compared {
                0 => format!("not used: {path} ({why})"),
                _ => format!("{path}: {why}"),
            });
        }
    }
    lines
}

/// `model.gguf (gguf, 20 tensors)`.
fn model(model: &CheckedModelFiles) -> String {
    let first = model.files.first().map_or("", String::as_str);
    let more = if model.files.len() > 1 {
        " and more"
    } else {
        ""
    };
    let tensors = plural(model.tensors, "tensor");
    format!("{}{more} ({}, {tensors})", escape(first), model.format)
}

/// Time and rate, on a terminal: elsewhere the text is the same for the same files.
fn speed(report: &CheckReport, screen: &Screen) -> String {
    if !screen.terminal || report.seconds <= 0.0 {
        return String::new();
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far below 2⁶⁴
    let rate = ByteSize((report.nbytes as f64 / report.seconds) as u64);
    format!(", {:.1} s ({rate}/s)", report.seconds)
}

/// Writes a finding. `several`: the models of a directory may have tensors of one name, which their files tell apart.
fn line(
    finding: &Finding,
    several: bool,
    rule_width: usize,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let style = match finding.level {
        FindingLevel::Error => REFUSED,
        FindingLevel::Warning => WARNING,
        FindingLevel::Note => Style::new(),
    };
    let level = screen.paint(style, format!("{:LEVEL_WIDTH$}", finding.level.name()));
    let (file, tensor) = (finding.file.as_deref(), finding.tensor.as_deref());
    let file = file.filter(|_| several || tensor.is_none());
    let subjects = file.into_iter().chain(tensor);
    let subject: String = subjects
        .map(|subject| format!("{}: ", escape(subject)))
        .collect();
    let text = format!("{subject}{}", finding_text(finding));
    let text = wrap(&text, screen.width, LEVEL_WIDTH + rule_width);
    writeln!(out, "{level}{:rule_width$}{text}", finding.rule)
}

/// The text of a finding, escaped, without the name of the tensor or file.
pub(crate) fn finding_text(finding: &Finding) -> String {
    let mut text = escape(&finding.message).into_owned();
    if let Some(first) = &finding.first {
        let index: Vec<String> = first.iter().map(u64::to_string).collect();
        text.push_str(&format!(", first at [{}]", index.join(",")));
    }
    // a tensor's finding is located by the index of its element, which means more to a reader than a byte
    if let (Some(offset), None) = (finding.offset, &finding.tensor) {
        text.push_str(&format!(" (at byte {})", ExactCount(offset)));
    }
    text
}

/// Remedies for errors and warnings, once for each rule.
fn remedies(report: &CheckReport, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    let mut shown = Vec::new();
    let findings = report.findings.iter();
    // notes need no action, and their remedies would hide the remedies of errors
    for finding in findings.filter(|finding| finding.level > FindingLevel::Note) {
        let Some(remedy) = finding.remedy.filter(|remedy| !shown.contains(remedy)) else {
            continue;
        };
        shown.push(remedy);
        let text = wrap(&format!("{}: {remedy}", finding.rule), screen.width, 8);
        writeln!(out, "  {}  {text}", screen.paint(DIM, "help"))?;
    }
    Ok(())
}

fn statistics(report: &CheckReport, wide: bool) -> Table {
    let mut table = Table::new(
        vec![
            Column::left("name").fit(ColumnFit::Middle(24)),
            Column::left("dtype"),
            Column::right("elements"),
            Column::right("min"),
            Column::right("max"),
            Column::right("mean"),
            Column::right("std"),
            Column::right("zeros"),
            Column::right("0.1 %"),
            Column::right("50 %"),
            Column::right("99.9 %"),
            Column::right("sampled"),
        ],
        0,
    );
    for tensor in &report.tensors {
        let Some(values) = &tensor.values else {
            continue;
        };
        table.cell(escape(&tensor.name));
        table.cell(escape(&tensor.stored.dtype));
        table.cell(ExactCount(values.elements));
        for value in [values.min, values.max, values.mean, values.std] {
            table.cell(number(value));
        }
        table.cell(ExactCount(values.zeros));
        let percentiles = values.percentiles.as_ref();
        for value in [
            percentiles.map(|p| p.p0_1),
            percentiles.map(|p| p.p50),
            percentiles.map(|p| p.p99_9),
        ] {
            // a column without content is left out
            table.cell(if wide { number(value) } else { String::new() });
        }
        // the number of values that the percentiles rest on, where it is not all of them
        let finite = values.elements.saturating_sub(values.nan + values.inf);
        table.cell(if wide && values.sampled < finite {
            ExactCount(values.sampled).to_string()
        } else {
            String::new()
        });
    }
    table
}

/// Three digits, in the shorter of two forms.
fn number(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "–".to_owned();
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    // within this range four decimals are no longer than an exponent, and easier to compare down a column
    if (1e-3..1e5).contains(&value.abs()) {
        format!("{value:.4}")
    } else {
        format!("{value:.2e}")
    }
}
