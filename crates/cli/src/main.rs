//! The `anamnesis` command: inspects, dequantises and loads tensor files, and drives the page cache.

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
mod resource_usage;
mod select;
#[cfg(unix)]
mod sigbus;
mod template;
mod text;
mod version;
#[cfg(target_os = "linux")]
mod warnings;

use std::process::ExitCode;

use args::{Cli, Verb};
use output::Stdout;

fn main() -> ExitCode {
    #[cfg(unix)]
    sigbus::install();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(message) => return exit::argument_error(&message),
    };
    let mut out = Stdout::lock();
    let result = match &cli.verb {
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
    exit::status(result.and_then(|completion| Ok(out.finish().map(|()| completion)?)))
}
