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

/// Valgrind with the options that count, without the program.
fn outer(out: &str) -> Command {
    let mut outer = process::bare("valgrind");
    outer.args([
        "--tool=callgrind",
        "--quiet",
        "--collect-atstart=no",
        TOGGLE,
    ]);
    outer.arg(format!("--callgrind-out-file={out}"));
    outer
}

/// The command that runs a case under callgrind.
pub(crate) fn command(files: &Path, out: &str, name: &str) -> Command {
    process::of(files, Some(outer(out)), Counter::Callgrind, name)
}

/// Counts the instructions of a case; `number` names the output file.
pub(crate) fn count(case: &Case, files: &Path, number: usize) -> Result<Counts, String> {
    let out = format!("callgrind.{number}");
    process::output(command(files, &out, &case.name))?;
    let total = total(&files.join(out))?;
    Ok(vec![(Metric::Instructions, total / u64::from(case.repeat))])
}

/// Counts the instructions of a process of the guard with these arguments, which runs in `files`.
pub(crate) fn count_process(
    files: &Path,
    number: usize,
    arguments: &[String],
) -> Result<u64, String> {
    let out = format!("callgrind.{number}");
    let mut command = outer(&out);
    command
        .arg(process::SELF)
        .args(arguments)
        .current_dir(files);
    process::output(command)?;
    total(&files.join(out))
}

/// The number of instructions in an output of callgrind.
fn total(out: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(out).map_err(|e| format!("callgrind's output: {e}"))?;
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
    Ok(total)
}
