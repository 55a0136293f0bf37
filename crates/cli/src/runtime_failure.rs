//! Failures of the page-cache runtime.

use crate::failure::Failure;

/// Converts an error of the runtime, with a remedy in terms of this command's flags.
pub(crate) fn failure(error: anamnesis_ppc::Error) -> Failure {
    use anamnesis_ppc::ErrorKind::{Invalid, Io, Limit, Policy, Stale, Unavailable};
    let (kind, remedy) = match error.kind() {
        Io(_) => ("io", "check the path and its permissions"),
        Unavailable(_) => (
            "unavailable",
            "run as root, or with CAP_PERFMON and CAP_DAC_READ_SEARCH, or choose another source with --source",
        ),
        Invalid(_) => ("invalid", "see `anamnesis ppc run --help` for valid values"),
        Stale(_) => ("stale", "the files have changed: run the command again"),
        Policy(_) => (
            "policy",
            "see the policy's message; without it the kernel manages these files",
        ),
        Limit(_) => ("limit", "choose a smaller directory"),
        // the kinds are open: a later one gets a general remedy
        _ => ("error", "see `anamnesis ppc --help`"),
    };
    // the path apart: it may be a URL, which is shown without its query
    let failure = Failure::new(kind, error.kind().to_string(), remedy);
    match error.path() {
        Some(path) => failure.in_file(path),
        None => failure,
    }
}
