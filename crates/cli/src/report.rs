//! `anamnesis report`: one page that shows a model, without network or build step.

mod columns;
mod document;
mod findings;
mod memory;
mod names;
mod page;
mod shown_names;
mod statistics;

use std::io::Write;
use std::path::Path;

use anamnesis::check::{CheckReport, check_path, open_readable};
use anamnesis::{Checkpoint, OpenOptions};

use crate::args::ReportArgs;
use crate::check::with_progress;
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Stdout;
use crate::paths::{InputPath, expand};
use crate::remedies::note_text;
use crate::shown_path::shown;
use crate::text::{ByteSize, ExactCount, plural};
use crate::written_file::WrittenFile;
use anamnesis::quote::escape;

pub(crate) fn run(
    args: &ReportArgs,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let to_stdout = args.output.as_os_str() == "-";
    // before the model is read, which may take minutes
    let output = match to_stdout {
        true => None,
        false => Some(WrittenFile::checked(
            &args.output,
            args.overwrite,
            std::slice::from_ref(&args.model),
            is_page,
        )?),
    };
    interrupt.handle();
    let mut inputs = expand(std::slice::from_ref(&args.model));
    let input = inputs.next().expect("an argument has one input at least")?;
    if inputs.next().is_some() {
        let message = "several files match this pattern, and a page shows one model";
        let failure = Failure::new("invalid_argument", message, "name one of them");
        return Err(failure.in_file(&args.model).into());
    }
    let document = match again(|| describe(&input, args, interrupt)) {
        Ok(document) => document,
        Err(_) if interrupt.requested() => return Ok(Completion::Interrupted),
        Err(error) => return Err(input.locate(Failure::from(error)).into()),
    };
    let page = page::assemble(&document)?;
    if interrupt.requested() {
        return Ok(Completion::Interrupted);
    }
    let Some(output) = output else {
        out.write_all(page.as_bytes())?;
        return Ok(Completion::Done);
    };
    output.write(page.as_bytes())?;
    writeln!(
        out,
        "{}: {} in a page of {}{}",
        escape(&shown(&args.output)),
        plural(document.tensors(), "tensor"),
        ByteSize(page.len() as u64),
        match document.omitted_tensors() {
            0 => String::new(),
            n => format!(", without the {} smallest", ExactCount(n)),
        }
    )?;
    Ok(Completion::Done)
}

/// Whether a file is a page of an earlier run.
fn is_page(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "html" || ending == "htm")
}

fn describe(
    input: &InputPath,
    args: &ReportArgs,
    interrupt: &Interrupt,
) -> anamnesis::Result<document::ReportDocument> {
    let options = args.opening.options().cancel(interrupt.token());
    let (checkpoint, partial) = open(input, args, &options)?;
    let mut summary = checkpoint.inspect()?;
    for warning in &mut summary.warnings {
        *warning = note_text(warning).into();
    }
    interrupt.check()?;
    let memory = memory::curves(&checkpoint, args, interrupt)?;
    let report = match args.checks() {
        true => Some(check(input, checkpoint, args, &options, interrupt)?),
        false => None,
    };
    Ok(document::ReportDocument::new(
        &summary,
        memory,
        report.as_ref(),
        partial,
    ))
}

/// Opens a model or, if its bytes are checked too, what can be opened of it; and whether that is not all of it.
fn open(
    input: &InputPath,
    args: &ReportArgs,
    options: &OpenOptions,
) -> anamnesis::Result<(Checkpoint, bool)> {
    match (input.open(options, !args.opening.no_map), input) {
        // without a check, nothing on the page would say why a part of the model is missing
        (Err(error), InputPath::Path(path) | InputPath::Found { path, .. }) if args.checks() => {
            open_readable(path, options)
                .map(|rest| (rest, true))
                .map_err(|_| error)
        }
        (opened, _) => opened.map(|checkpoint| (checkpoint, false)),
    }
}

/// Checks the bytes, as `check` does.
fn check(
    input: &InputPath,
    opened: Checkpoint,
    args: &ReportArgs,
    options: &OpenOptions,
    interrupt: &Interrupt,
) -> anamnesis::Result<CheckReport> {
    let check = match input {
        // opens it anew, to find all faults of its files and of their index
        InputPath::Path(path) | InputPath::Found { path, .. } => {
            // first: both at once would need twice the memory
            drop(opened);
            check_path(path, options)
        }
        InputPath::Stdin => anamnesis::check(&opened),
    };
    let check = if args.stats {
        check.statistics()
    } else {
        check
    };
    with_progress(check, interrupt)
}
