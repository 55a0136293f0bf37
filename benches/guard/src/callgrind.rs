//! Counting instructions under callgrind.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::case::{Case, Counter, Counts, Metric};
use crate::process;

/// Counts `case::measured_call` and its callees only, however the compiler mangles the name.
const TOGGLE: &str = "--toggle-collect=*case*measured_call*";

/// Valgrind's version, or `None` if it is not installed.
pub(crate) fn version() -> Option<String> {
    let mut command = process::bare("valgrind");
    command.arg("--version");
    process::output(command).ok()
}

/// The command that runs a case under callgrind.
pub(crate) fn command(files: &Path, out: &str, name: &str) -> Command {
    let mut outer = process::bare("valgrind");
    outer.args([
        "--tool=callgrind",
        "--quiet",
        "--collect-atstart=no",
        TOGGLE,
    ]);
    outer.arg(format!("--callgrind-out-file={out}"));
    process::of(files, Some(outer), Counter::Callgrind, name)
}

/// Counts the instructions of a case; `number` names the output file.
pub(crate) fn count(case: &Case, files: &Path, number: usize) -> Result<Counts, String> {
    let out = format!("callgrind.{number}");
    process::output(command(files, &out, &case.name))?;
    let text =
        fs::read_to_string(files.join(out)).map_err(|e| format!("callgrind's output: {e}"))?;
    let total = text.lines().find_map(|line| {
        line.strip_prefix("totals:")
            .or(line.strip_prefix("summary:"))
    });
    let total: u64 = total
        .and_then(|total| total.trim().parse().ok())
        .ok_or("callgrind's output has no total")?;
    if total == 0 {
        return Err("callgrind counted nothing: it did not find `measured_call`".to_owned());
    }
    Ok(vec![(Metric::Instructions, total / u64::from(case.repeat))])
}
