//! `anamnesis`: show what tensor files hold and bring their weights back, without trusting them.

mod args;
mod completions;
mod exit;
mod hash;
mod inspect;
mod interrupt;
mod load;
mod man;
mod output;
mod paths;
mod plan;
#[cfg(target_os = "linux")]
mod ppc;
#[cfg(target_os = "linux")]
mod record;
mod remember;
mod select;
mod template;
mod usage;
mod version;
#[cfg(target_os = "linux")]
mod warnings;

use std::process::ExitCode;

use args::{Cli, Verb};
use output::Stdout;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(message) => return exit::usage(&message),
    };
    let mut out = Stdout::lock();
    let done = match &cli.verb {
        Verb::Inspect(args) => inspect::run(args, cli.color, &mut out),
        Verb::Remember(args) => remember::run(args, cli.color, &mut out),
        Verb::Load(args) => load::run(args, cli.color, &mut out),
        Verb::Plan(args) => plan::run(args, cli.color, &mut out),
        #[cfg(target_os = "linux")]
        Verb::Record(args) => record::run(args, &mut out),
        #[cfg(target_os = "linux")]
        Verb::Ppc(args) => ppc::run(args, cli.color, &mut out),
        Verb::Template(args) => template::run(args, cli.color, &mut out),
        Verb::Completions(args) => completions::run(args, &mut out),
        Verb::Man(args) => man::run(args, &mut out),
    };
    exit::code(done.and_then(|code| Ok(out.finish().map(|()| code)?)))
}
