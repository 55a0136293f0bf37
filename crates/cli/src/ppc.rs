//! `anamnesis ppc`: the page cache, driven by policies.

pub(crate) mod child;
mod policy;
mod run;
mod status;

use crate::args::{Color, Ppc};
use crate::exit::{Code, Failure, Stop};
use crate::output::Stdout;

pub(crate) fn run(args: &Ppc, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    match args {
        Ppc::Run(args) => run::run(args),
        Ppc::Status(args) => status::run(args, color, out),
        Ppc::Host => match anamnesis_ppc::host::serve() {
            Ok(()) => Ok(Code::Done),
            Err(error) => Err(failure(error).into()),
        },
    }
}

/// What went wrong, and what can be done about it.
pub(crate) fn failure(error: anamnesis_ppc::Error) -> Failure {
    use anamnesis_ppc::ErrorKind::{Invalid, Io, Limit, Policy, Stale, Unavailable};
    let (kind, remedy) = match error.kind() {
        Io(_) => ("io", "check the path, and whether you may read it"),
        Unavailable(_) => (
            "unavailable",
            "run it as root, or with CAP_PERFMON; `--source` names others",
        ),
        Invalid(_) => ("invalid", "see `anamnesis ppc run --help`"),
        Stale(_) => ("stale", "start again: the files have changed"),
        Policy(_) => (
            "policy",
            "see what the policy says; the kernel decides without it",
        ),
        Limit(_) => ("limit", "give a smaller directory"),
        _ => ("error", "see `anamnesis ppc --help`"),
    };
    Failure::new(kind, error.to_string(), remedy)
}
