//! `anamnesis remember`: dequantises a checkpoint to safetensors.

mod part;
mod pipeline;
mod planned_output;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anamnesis::companions::{LeftOut, LeftOutReason};
use anamnesis::quote::escape;
use anamnesis::{Checkpoint, Dtype, Plan, remember};
use serde_json::json;

use crate::args::{Color, OpenArgs, RememberArgs, WeightArgs};
use crate::exit::{Completion, RunError, again, report_after};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::{NameChanges, NameFilter};
use crate::output::{Screen, Stdout, WARNING, json};
use crate::shown_path::shown;
use crate::template::SavedTemplate;
use crate::text::{ByteSize, listed, plural};
use crate::written_file::check_tensor_output;
use crate::written_run::{WrittenReport, check_record, names_of};
use crate::{checkpoint_warnings, request_stats};
use planned_output::PlannedOutput;
pub(crate) use planned_output::require_weights;

pub(crate) fn run(
    args: &RememberArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let reported = ReportedRun::begin(
        std::slice::from_ref(&args.source),
        &args.output,
        args.json,
        &args.opening,
    );
    if let Some(part) = args.part {
        return part::run(args, part, &screen, interrupt, out);
    }
    let names = OutputNames {
        filter: args.weights.name_filter(),
        changes: NameChanges::new(args.strip_prefix.as_deref(), &args.rename),
    };
    let written = match check_tensor_output(&args.output) {
        Err(failure) => Err(failure),
        Ok(()) if pipeline::is_pipeline(&args.source) => {
            again(|| pipeline::write_all(args, &names, &screen, interrupt))
        }
        Ok(()) => again(|| write(args, &names, &args.source, &args.output, &screen, interrupt)),
    };
    reported.end(written, &screen, interrupt, out)
}

/// A run that writes an output, from its beginning to the report about it.
pub(crate) struct ReportedRun<'a> {
    started: Instant,
    sources: &'a [PathBuf],
    output: &'a Path,
    json: bool,
    opening: &'a OpenArgs,
}

impl<'a> ReportedRun<'a> {
    pub(crate) fn begin(
        sources: &'a [PathBuf],
        output: &'a Path,
        json: bool,
        opening: &'a OpenArgs,
    ) -> Self {
        Self {
            started: Instant::now(),
            sources,
            output,
            json,
            opening,
        }
    }

    /// Prints what was written, or why nothing was.
    pub(crate) fn end(
        self,
        written: Result<WrittenReport, Failure>,
        screen: &Screen,
        interrupt: &Interrupt,
        out: &mut Stdout,
    ) -> Result<Completion, RunError> {
        match written {
            Ok(report) => {
                let done = "the output is complete, and the report about it is not written";
                report_after(done, out, |out| match self.json {
                    true => self.write_document(&report, out),
                    false => self.write_lines(&report, screen, out),
                })?;
                Ok(Completion::Done)
            }
            Err(failure) => failure.end(self.json, interrupt, out),
        }
    }

    fn write_document(&self, report: &WrittenReport, out: &mut Stdout) -> Result<(), RunError> {
        let files = report.files.iter();
        let files: Vec<_> = files.map(|file| shown(file.as_ref())).collect();
        let source = match self.sources {
            [one] => json!(shown(one)),
            several => several.iter().map(|source| json!(shown(source))).collect(),
        };
        let mut document = json!({
            "version": json::VERSION,
            "source": source,
            "files": files,
            "dtype": report.dtype(),
            "companions": report.companions,
            "left_out": report.left_out.iter().map(left_out_json).collect::<Vec<_>>(),
            "left_out_more": report.left_out_more,
            "weights": report.weights,
            "plain": report.plain,
            "nbytes": report.nbytes,
            "seconds": self.started.elapsed().as_secs_f64(),
            "notes": report.about_place.iter().chain(&report.notes).collect::<Vec<_>>(),
            "recorded": report.recorded.as_ref().map(SavedTemplate::document),
        });
        request_stats::add_to(&mut document, self.opening);
        Ok(json::write_line(&document, out)?)
    }

    fn write_lines(
        &self,
        report: &WrittenReport,
        screen: &Screen,
        out: &mut Stdout,
    ) -> Result<(), RunError> {
        let left_out = left_out_notes(report);
        for note in report.notes.iter().chain(&left_out) {
            writeln!(out, "{} {}", screen.paint(WARNING, "note:"), escape(note))?;
        }
        let mut line = format!("{}: {}", escape(&shown(self.output)), description(report));
        // elsewhere the line is the same for the same files, so that logs can be compared
        if std::io::stdout().is_terminal() {
            let seconds = self.started.elapsed().as_secs_f64();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // shown to two digits
            let rate = (report.nbytes as f64 / seconds.max(1e-9)) as u64;
            line.push_str(&format!(", in {seconds:.2} s ({}/s)", ByteSize(rate)));
        }
        writeln!(out, "{line}")?;
        let mut recorded = report.recorded.iter();
        Ok(recorded.try_for_each(|recorded| writeln!(out, "{recorded}"))?)
    }
}

/// Which names the outputs have, and which have an output.
struct OutputNames<'a> {
    filter: NameFilter<'a>,
    changes: NameChanges<'a>,
}

impl OutputNames<'_> {
    /// Refuses a pattern or a change that no name has matched.
    fn require_matches(&self, source: &Path) -> Result<(), Failure> {
        let filtered = self.filter.require_matches();
        let changed = filtered.and_then(|()| self.changes.require_matches());
        changed.map_err(|failure| failure.in_file(source))
    }
}

/// `15 weights as BF16, 5 plain tensors, 2 files, 401.20 KiB`.
fn description(report: &WrittenReport) -> String {
    let mut parts = Vec::new();
    if let Some(name) = report.file_type.filter(|_| report.weights > 0) {
        parts.push(format!(
            "{} as {name}",
            plural(report.weights as u64, "weight")
        ));
    } else if report.weights > 0 && report.is_stored {
        let tensors = plural(report.weights as u64, "tensor");
        parts.push(format!("{tensors} of quantised weights as stored"));
    } else if report.weights > 0 {
        parts.push(format!(
            "{} as {}",
            plural(report.weights as u64, "weight"),
            names_of(&report.dtypes)
        ));
    }
    if report.plain > 0 {
        parts.push(plural(report.plain as u64, "plain tensor"));
    }
    if report.files.len() > 1 {
        parts.push(plural(report.files.len() as u64, "file"));
    }
    parts.push(ByteSize(report.nbytes).to_string());
    if !report.companions.is_empty() {
        let count = report.companions.len() as u64;
        let names = listed(
            report.companions.iter().map(|name| escape(name)),
            MOST_LISTED,
            "",
        );
        parts.push(format!("with {}: {names}", plural(count, "companion file")));
    }
    parts.join(", ")
}

/// Writes the output of one checkpoint, and the template of `--record`.
fn write(
    args: &RememberArgs,
    names: &OutputNames<'_>,
    source: &Path,
    output: &Path,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<WrittenReport, Failure> {
    let sources = [source.to_owned()];
    check_record(args.record.as_ref(), output, args.overwrite, &sources)?;
    let options = args.opening.options().cancel(interrupt.token());
    let checkpoint = options.open(source)?;
    checkpoint_warnings::show(&checkpoint, screen);
    let planned = PlannedOutput::new(args, names, &checkpoint, source, output, screen)?;
    names.require_matches(source)?;
    planned.write(interrupt)
}

/// Modules that training programs wrap a model in, and keys that they store its state under.
const WRAPPERS: &[&str] = &[
    "state_dict",
    "model_state_dict",
    "module",
    "_orig_mod",
    "ema",
    "params",
];

/// A note that proposes --strip-prefix, where all names begin with a wrapper's: no client finds them.
fn wrapper_prefix(checkpoint: &Checkpoint, plan: &Plan, args: &RememberArgs) -> Option<String> {
    // safetensors and GGUF are written from models, not from training state
    if !matches!(checkpoint.catalog().format(), "pth" | "dcp") {
        return None;
    }
    let mut names = plan.jobs.iter().map(|job| &*job.output.name);
    let first = names.next()?;
    let (wrapper, _) = first.split_once('.')?;
    if !WRAPPERS.contains(&wrapper) || args.strip_prefix.is_some() {
        return None;
    }
    // the longest sequence of whole components that all names share
    let shared = names.fold(first, |shared, name| {
        // bytes are compared, and may be equal up to the middle of a character
        let same = shared.bytes().zip(name.bytes()).take_while(|(a, b)| a == b);
        &shared[..shared.floor_char_boundary(same.count())]
    });
    let prefix = &shared[..shared.rfind('.')?];
    Some(format!(
        "all names begin with {prefix}. ; --strip-prefix {prefix} removes it"
    ))
}

/// Names of a list that are shown, of a directory that has any number.
const MOST_LISTED: usize = 100;

/// Notes about files of the source that are not in the output, one for each reason.
fn left_out_notes(report: &WrittenReport) -> Vec<String> {
    let mut notes: Vec<String> = report
        .left_out
        .chunk_by(|a, b| a.reason == b.reason)
        .map(|left| {
            let names = left.iter().map(|left| escape(&left.name));
            let names = listed(names, MOST_LISTED, "");
            let reason = left[0].reason;
            let remedy = match reason {
                LeftOutReason::Code => "; --code copies it",
                _ => "",
            };
            format!("not copied: {names} ({reason}{remedy})")
        })
        .collect();
    if report.left_out_more > 0 {
        let more = plural(report.left_out_more, "further file");
        notes.push(format!("not copied: {more}"));
    }
    notes
}

fn left_out_json(left: &LeftOut) -> serde_json::Value {
    json!({"name": left.name, "reason": left.reason.name()})
}

/// A [`remember`] with the options and filters of the arguments.
pub(crate) fn configure<'c>(
    checkpoint: &'c Checkpoint,
    args: &'c WeightArgs,
    filter: &'c NameFilter<'_>,
) -> anamnesis::Remember<'c> {
    remember(checkpoint)
        .dtype(args.dtype.unwrap_or(Dtype::BF16.into()))
        .cast(args.cast)
        .native_rounding(args.native_rounding)
        .names(args.names.unwrap_or_default())
        .filter(|name| filter.passes(name))
}
