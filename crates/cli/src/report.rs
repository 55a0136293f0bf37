//! `anamnesis report`: one page that shows a model, without network or build step.

mod columns;
mod document;
mod memory;
mod names;
mod page;

use std::io::Write;

use anamnesis_os::whole_file::{self, WriteOptions};

use crate::args::ReportArgs;
use crate::exit::{Completion, Failure, RunError, with_flags};
use crate::interrupt::Interrupt;
use crate::output::Stdout;
use crate::paths::{InputPath, expand};
use crate::template::check_output;
use crate::text::{ByteSize, plural};
use anamnesis::quote::escape;

pub(crate) fn run(
    args: &ReportArgs,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let to_stdout = args.output.as_os_str() == "-";
    if !to_stdout {
        check_output(&args.output, args.overwrite)?;
    }
    interrupt.handle();
    let mut inputs = expand(std::slice::from_ref(&args.model));
    let input = inputs.next().expect("an argument has one input at least")?;
    if inputs.next().is_some() {
        let message = "several files match this pattern, and a page shows one model";
        let failure = Failure::new("invalid_argument", message, "name one of them");
        return Err(failure.in_file(&args.model).into());
    }
    let document = match describe(&input, args, interrupt) {
        Ok(document) => document,
        Err(_) if interrupt.requested() => return Ok(Completion::Interrupted),
        Err(error) => return Err(input.locate(Failure::from(error)).into()),
    };
    let page = page::assemble(&document)?;
    if interrupt.requested() {
        return Ok(Completion::Interrupted);
    }
    if to_stdout {
        out.write_all(page.as_bytes())?;
        return Ok(Completion::Done);
    }
    let options = WriteOptions {
        overwrite: args.overwrite,
        sync: false,
    };
    whole_file::write(&args.output, page.as_bytes(), "page", options)
        .map_err(|e| Failure::from(anamnesis::Error::from(e).in_file(&args.output)))?;
    writeln!(
        out,
        "{}: {} in a page of {}",
        escape(&args.output.display().to_string()),
        plural(document.tensors(), "tensor"),
        ByteSize(page.len() as u64)
    )?;
    Ok(Completion::Done)
}

fn describe(
    input: &InputPath,
    args: &ReportArgs,
    interrupt: &Interrupt,
) -> anamnesis::Result<document::ReportDocument> {
    let options = args.opening.options().cancel(interrupt.token());
    let checkpoint = input.open(&options, !args.opening.no_map)?;
    let mut summary = checkpoint.inspect()?;
    for warning in &mut summary.warnings {
        *warning = with_flags(warning);
    }
    interrupt.check()?;
    let memory = memory::curves(&checkpoint, args, interrupt)?;
    Ok(document::ReportDocument::new(&summary, memory))
}
