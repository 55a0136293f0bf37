//! One of several parts of an output directory, which as many processes make.

use std::io::Write;
use std::path::PathBuf;

use anamnesis::sink::Sharding;
use anamnesis::{Checkpoint, MadePart};
use serde_json::json;

use super::planned_output::PlannedOutput;
use super::{OutputNames, pipeline};
use crate::args::RememberArgs;
use crate::checkpoint_warnings;
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::NameChanges;
use crate::output::{Screen, Stdout, WARNING, json};
use crate::shown_path::shown;
use crate::text::plural;
use crate::written_file::check_tensor_output;
use crate::written_run::notes_of;
use anamnesis::quote::escape;

pub(super) fn run(
    args: &RememberArgs,
    part: (usize, usize),
    screen: &Screen,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let made = check_tensor_output(&args.output)
        .and_then(|()| again(|| make(args, part, screen, interrupt)));
    match made {
        Ok((made, notes)) => {
            show(args, part, &made, &notes, screen, out)?;
            Ok(Completion::Done)
        }
        Err(failure) => failure.end(args.json, interrupt, out),
    }
}

/// Makes the part; also the notes of the plan.
fn make(
    args: &RememberArgs,
    (index, count): (usize, usize),
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<(MadePart, Vec<String>), Failure> {
    if pipeline::is_pipeline(&args.source) {
        let help = "convert each of its models, or all without --part";
        let what = "a pipeline is several models, which have no parts";
        return Err(Failure::new("invalid_argument", what, help));
    }
    let names = OutputNames {
        filter: args.weights.name_filter(),
        changes: NameChanges::new(args.strip_prefix.as_deref(), &args.rename),
    };
    let options = args.opening.options().cancel(interrupt.token());
    let checkpoint: Checkpoint = options.open(&args.source)?;
    checkpoint_warnings::show(&checkpoint, screen);
    interrupt.handle();
    let planned = PlannedOutput::new(
        args,
        &names,
        &checkpoint,
        &args.source,
        &args.output,
        screen,
    )?;
    names.require_matches(&args.source)?;
    let Sharding::Shards(bytes) = planned.remember.sharding(&args.output, args.shard_size)? else {
        let what = "one file has no parts";
        let help = "give a directory to --output: a path that ends in `/`";
        return Err(Failure::new("invalid_argument", what, help));
    };
    let notes = notes_of(&planned.plan);
    let remember = planned.remember.cancel(interrupt.token());
    let made = remember.make_part(&planned.plan, &args.output, bytes, index, count)?;
    Ok((made, notes))
}

fn show(
    args: &RememberArgs,
    (index, count): (usize, usize),
    made: &MadePart,
    notes: &[String],
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), RunError> {
    if args.json {
        let paths =
            |files: &[PathBuf]| -> Vec<String> { files.iter().map(|file| shown(file)).collect() };
        let document = json!({
            "version": json::VERSION,
            "source": shown(&args.source),
            "part": {"number": index + 1, "of": count},
            "made": paths(&made.made),
            "missing": made.missing,
            "files": made.files.as_deref().map(paths),
            "notes": notes,
        });
        return Ok(json::write_line(&document, out)?);
    }
    for note in notes {
        writeln!(out, "{} {}", screen.paint(WARNING, "note:"), escape(note))?;
    }
    let output = shown(&args.output);
    let files = plural(made.made.len() as u64, "file");
    let rest = match &made.files {
        Some(files) => format!("complete, {}", plural(files.len() as u64, "file")),
        None => format!("{} missing", plural(made.missing as u64, "file")),
    };
    let part = index + 1;
    Ok(writeln!(
        out,
        "{}: part {part} of {count}: {files} made; {rest}",
        escape(&output)
    )?)
}
