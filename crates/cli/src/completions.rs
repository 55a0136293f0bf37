//! `anamnesis completions`: a completion script, generated from the clap definitions in [`crate::args`].

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::{Completion, RunError};
use crate::output::Stdout;

pub(crate) fn run(args: &CompletionsArgs, out: &mut Stdout) -> Result<Completion, RunError> {
    // the generator panics if a write fails, so it writes to memory
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "anamnesis", &mut script);
    out.write_all(&script)?;
    Ok(Completion::Done)
}
