//! The processes of cases: the same arguments, environment and directory wherever the guard runs, since all of these
//! lie in front of a program's stack.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::Way;

/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// This program's name in the directory of files.
pub(crate) const SELF: &str = "./guard";

/// A command that sees nothing of who runs it.
pub(crate) fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null());
    command
}

/// The process of a case, run by itself or by `outer`, a command that takes a program and its arguments.
pub(crate) fn of(files: &Path, outer: Option<Command>, way: Way, name: &str) -> Command {
    let mut command = match outer {
        Some(mut outer) => {
            outer.arg(SELF);
            outer
        }
        None => bare(SELF),
    };
    command.args(["case", way.name(), name]).current_dir(files);
    command
}

/// What it prints; what it says of a failure.
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
