//! `anamnesis inspect`: opens each input and shows its summary.

use std::io::Write;

use anamnesis::{OpenOptions, Summary, Value};

use crate::args::{Color, InspectArgs};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::NameFilter;
use crate::output::json::InspectDocument;
use crate::output::{Screen, Stdout, metadata, overview, tensors, tree};
use crate::paths::{self, InputPath};
use crate::remedies::note_text;
use crate::{hash, request_stats, select};

/// Lines around the rows of a tree: one above it, its headings, the line that says what is hidden, and the next prompt.
const TREE_FRAME: usize = 4;
/// Number of rows that a tree has on a small screen: more than fits, as fewer say nothing.
const MIN_ROWS: usize = 6;

/// The answer of `inspect` for one checkpoint.
struct Inspection {
    summary: Summary,
    /// Number of tensors before the filter.
    unfiltered_count: usize,
    /// The value of the key in `--metadata=KEY`.
    value: Option<Value>,
    /// A failure after the summary was complete, such as an unreadable tensor under `--hash`.
    failure: Option<Failure>,
}

pub(crate) fn run(
    args: &InspectArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let options = args.opening.options().cancel(interrupt.token());
    // written checkpoint by checkpoint: a glob may name thousands of files, whose summaries do not fit in memory
    // together
    let mut document = args
        .json
        .then(|| InspectDocument::start(args, out))
        .transpose()?;
    let filter = NameFilter::new(&args.filter);
    let mut completion = Completion::Done;
    let (mut shown, mut failed) = (0, false);
    for input in paths::expand_trees(&args.paths, args.recursive, &options) {
        if interrupt.requested() {
            break;
        }
        let failure =
            match input.and_then(|input| inspect(&input, args, &filter, &options, interrupt)) {
                Err(failure) => Some(failure),
                Ok(inspection) => {
                    match &mut document {
                        Some(document) => document.add_checkpoint(&inspection.summary, out)?,
                        None => show(&inspection, args, &screen, shown > 0, out)?,
                    }
                    shown += 1;
                    inspection.failure
                }
            };
        if let Some(failure) = failure {
            // standard output first, so that a message on a terminal follows what was shown before it
            out.flush()?;
            failure.report();
            document
                .iter_mut()
                .for_each(|document| document.add_failure(failure.clone()));
            (completion, failed) = (Completion::Failed, true);
        }
    }
    if interrupt.requested() {
        // an incomplete document would look like a complete one
        return Ok(Completion::Interrupted);
    }
    // after the last one: a pattern for one shard is no mistake where several are named; and a model that could not be
    // read might have had a name that matches
    if let (false, Err(failure)) = (failed, filter.require_matches()) {
        out.flush()?;
        failure.report();
        completion = failure.completion();
        document
            .iter_mut()
            .for_each(|document| document.add_failure(failure.clone()));
    }
    if let Some(document) = document {
        document.finish(request_stats::document(&args.opening), out)?;
    }
    Ok(completion)
}

fn inspect(
    input: &InputPath,
    args: &InspectArgs,
    filter: &NameFilter<'_>,
    options: &OpenOptions,
    interrupt: &Interrupt,
) -> Result<Inspection, Failure> {
    let summarised = again(|| summarise(input, args, filter, options, interrupt));
    let mut inspection = summarised.map_err(|failure| input.locate(failure))?;
    inspection.failure = inspection.failure.map(|failure| input.locate(failure));
    Ok(inspection)
}

fn summarise(
    input: &InputPath,
    args: &InspectArgs,
    filter: &NameFilter<'_>,
    options: &OpenOptions,
    interrupt: &Interrupt,
) -> Result<Inspection, Failure> {
    let checkpoint = input.open(options, !args.opening.no_map)?;
    let value = match &args.metadata {
        Some(Some(key)) => Some(checkpoint.metadata(key)?.ok_or_else(|| {
            let message = format!("no metadata key `{key}`");
            Failure::new("no_such_key", message, "list the keys with `--metadata`")
        })?),
        _ => None,
    };
    let mut summary = checkpoint.inspect()?;
    for warning in &mut summary.warnings {
        *warning = note_text(warning).into();
    }
    if let (Some(Some(key)), Some(value), true) = (&args.metadata, &value, args.json) {
        // the summary shortens long arrays; the key that was named is complete
        summary.metadata.set(key, value.clone());
    }
    let wanted = |name: &str| filter.passes(name);
    // before the filter and the order are applied: hashes are stored by the tensor's place in the catalog
    let failure = if args.hash {
        hash::fill(&checkpoint, &mut summary, wanted, interrupt).err()
    } else {
        None
    };
    // the overview says how many pass of how many
    let unfiltered_count = summary.tensors.len();
    if !filter.is_empty() {
        let refused = checkpoint.catalog().refused();
        // listed whatever the filter is, with the reason
        refused.iter().for_each(|entry| filter.observe(&entry.name));
        summary.retain(|tensor| wanted(&tensor.name));
    }
    if args.is_summary() {
        summary.tensors.clear();
    }
    select::sort(&mut summary, args.sort, args.reverse);
    Ok(Inspection {
        summary,
        unfiltered_count,
        value,
        failure,
    })
}

fn show(
    inspection: &Inspection,
    args: &InspectArgs,
    screen: &Screen,
    is_further: bool,
    out: &mut Stdout,
) -> Result<(), RunError> {
    let Inspection {
        summary,
        unfiltered_count,
        value,
        ..
    } = inspection;
    if let Some(value) = value {
        // a single value is printed alone, so that a script can use it; only several need to be told apart
        if args.paths.len() > 1 || is_further {
            metadata::heading(summary, screen, out)?;
        }
        return Ok(metadata::value(value, screen, out)?);
    }
    if is_further {
        writeln!(out)?;
    }
    // both are measured: the tree gets the lines that they leave
    let (mut above, mut below) = (Vec::new(), Vec::new());
    let is_filtered = !args.filter.is_empty();
    overview::show(summary, *unfiltered_count, is_filtered, screen, &mut above)?;
    overview::warnings(summary, screen, &mut below)?;
    out.write_all(&above)?;
    if args.metadata.is_some() {
        metadata::list(summary, screen, out)?;
    }
    if args.tree {
        tree::show(summary, args.all, screen, out)?;
    } else if args.metadata.is_none() && !args.is_summary() {
        match screen.height {
            Some(height) if args.is_fitted() => {
                let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
                let taken = lines(&above) + lines(&below) + TREE_FRAME;
                let rows = height.saturating_sub(taken).max(MIN_ROWS);
                tree::show_fitting(summary, rows, screen, out)?;
            }
            _ => tensors::show(summary, args.hash, screen, out)?,
        }
    }
    Ok(out.write_all(&below)?)
}
