//! The `anamnesis` command as a library: inspects, dequantises and loads tensor files, and drives the page cache.
//!
//! [`run`] and [`run_with`] do what the program does with the same arguments, in a process of the caller's: other programs have the
//! command as a part of theirs. They write to standard output and standard error, change no handler of a signal, and never
//! end the process. Only what the caller invokes changes the process: [`report_bus_errors`], [`report_size_limits`], and
//! [`Interrupt::by_signals`].
//!
//! ```
//! use anamnesis::CancelToken;
//! use anamnesis_cli::{Interrupt, run_with};
//!
//! let token = CancelToken::new(); // cancelled by another thread, it interrupts the run
//! let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gguf/plain_v3.gguf");
//! let status = run_with(["anamnesis", "inspect", "--summary", path], &Interrupt::by_token(&token));
//! assert_eq!(status, 0);
//! ```

mod answer;
mod args;
mod check;
mod checkpoint_warnings;
#[cfg(target_os = "linux")]
mod child;
mod completions;
mod convert;
mod diff;
mod edit;
mod exit;
mod failure;
mod fit;
mod hash;
mod inspect;
mod interrupt;
mod load;
mod ls;
mod man;
mod messages;
#[cfg(target_os = "linux")]
mod model_argument;
mod name_filter;
mod output;
mod paths;
mod plan;
#[cfg(target_os = "linux")]
mod ppc;
mod quantise;
#[cfg(target_os = "linux")]
mod record;
mod remedies;
mod remember;
mod report;
mod request_stats;
mod resource_usage;
#[cfg(target_os = "linux")]
mod runtime_failure;
mod select;
mod shown_path;
#[cfg(unix)]
mod sigbus;
mod template;
mod text;
mod version;
#[cfg(target_os = "linux")]
mod warm;
#[cfg(target_os = "linux")]
mod warnings;
mod written_file;
mod written_run;

use std::ffi::OsString;
use std::process::ExitCode;

use anamnesis::CancelToken;
pub use answer::{AnswerFailure, VerbAnswer, answer};
use args::{Cli, Verb};
pub use interrupt::Interrupt;
use output::Stdout;
#[cfg(unix)]
pub use sigbus::{report_bus_errors, report_size_limits};

/// The example of the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the command. The first argument is the program's name, as in [`std::env::args_os`].
///
/// The exit status is 0 for success, 1 for failure and 2 for invalid arguments. `fit` returns 1 for a model that does not
/// fit, `check` 1 for findings, `diff` 1 for checkpoints that differ, and all three 2 for a model that cannot be read. `ppc
/// run`, `record` and `warm` return the status of the program that they started. Failures have been reported on standard
/// error. The run cannot be interrupted: see [`run_with`].
///
/// A policy in a shared library (`ppc run --policy ./lib.so`) runs in a host process, for which the running program is
/// started with the arguments `ppc host`: a program other than `anamnesis` passes them to this function. `record` and `ppc run`
/// install a `tracing` subscriber, unless the process has one.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
    ExitCode::from(run_with(args, &Interrupt::by_token(&CancelToken::new())))
}

/// Like [`run`], but can be interrupted; the exit status is 130 then. Returns the status as a number, which an [`ExitCode`]
/// does not tell: not every caller is a `main`.
pub fn run_with(args: impl IntoIterator<Item = impl Into<OsString>>, interrupt: &Interrupt) -> u8 {
    let words: Vec<OsString> = args.into_iter().map(Into::into).collect();
    run_into(&words, interrupt, &mut Stdout::lock())
}

/// Runs the command with its output to a writer.
fn run_into(words: &[OsString], interrupt: &Interrupt, out: &mut Stdout) -> u8 {
    let cli = match Cli::read(words) {
        Ok(cli) => cli,
        // `--help` and `--version` come here too: clap returns them as errors, with the status 0
        Err(message) => return exit::argument_error(&message, words),
    };
    let result = match &cli.verb {
        Verb::Inspect(args) => inspect::run(args, cli.color, interrupt, out),
        Verb::Ls(args) => ls::run(args, cli.color, interrupt, out),
        Verb::Convert(args) => convert::run(args, cli.color, interrupt, out),
        Verb::Edit(args) => edit::run(args, cli.color, interrupt, out),
        Verb::Remember(args) => remember::run(args, cli.color, interrupt, out),
        Verb::Load(args) => load::run(args, cli.color, interrupt, out),
        Verb::Plan(args) => plan::run(args, cli.color, out),
        Verb::Fit(args) => fit::run(args, cli.color, interrupt, out),
        Verb::Diff(args) => diff::run(args, cli.color, interrupt, out),
        Verb::Check(args) => check::run(args, cli.color, interrupt, out),
        #[cfg(target_os = "linux")]
        Verb::Warm(args) => warm::run(args, interrupt, out),
        Verb::Report(args) => report::run(args, interrupt, out),
        #[cfg(target_os = "linux")]
        Verb::Record(args) => record::run(args, interrupt, out),
        #[cfg(target_os = "linux")]
        Verb::Ppc(args) => ppc::run(args, cli.color, interrupt, out),
        Verb::Template(args) => template::run(args, cli.color, out),
        Verb::Completions(args) => completions::run(args, out),
        Verb::Man(args) => man::run(args, out),
    };
    // flushed before the status is decided: a full disk behind standard output is a failure of the run
    let status = exit::status(result.and_then(|completion| Ok(out.finish().map(|()| completion)?)));
    cli.verb
        .files()
        .into_iter()
        .for_each(request_stats::report_uncompared);
    // also of a run that failed: its requests may say why
    cli.verb
        .opening()
        .into_iter()
        .for_each(request_stats::report);
    status
}

/// Does nothing: only Unix has SIGBUS.
#[cfg(not(unix))]
pub fn report_bus_errors() {}

/// Does nothing: only Unix has SIGXFSZ.
#[cfg(not(unix))]
pub fn report_size_limits() {}
