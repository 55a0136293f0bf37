//! Commands with fixed arguments, environment and directory.
//!
//! These lie above a program's stack, so their lengths decide its alignment, which changes counts.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::Counter;

/// The only environment variable of every process.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The guard's own name in the directory of case files, to which it copies itself.
pub(crate) const SELF: &str = "./guard";

/// A command without the caller's environment and input.
pub(crate) fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null());
    command
}

/// The command that runs a case, directly or as the argument of `outer` (such as valgrind).
pub(crate) fn of(files: &Path, outer: Option<Command>, counter: Counter, name: &str) -> Command {
    let mut command = match outer {
        Some(mut outer) => {
            outer.arg(SELF);
            outer
        }
        None => bare(SELF),
    };
    command
        .args(["case", counter.name(), name])
        .current_dir(files);
    command
}

/// Runs a command and returns its standard output, or an error with its standard error.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!(
        "{program}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
