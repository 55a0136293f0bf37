//! `anamnesis completions`: a completion script, generated from the arguments.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::exit::{Code, Stop};
use crate::output::Stdout;

pub(crate) fn run(args: &Completions, out: &mut Stdout) -> Result<Code, Stop> {
    let mut script = Vec::new(); // the generator panics where a write fails
    clap_complete::generate(args.shell, &mut Cli::command(), "anamnesis", &mut script);
    out.write_all(&script)?;
    Ok(Code::Done)
}
