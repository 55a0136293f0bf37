//! Runs other programs.

use std::process::Command;

use crate::Failure;

/// The trimmed standard output of a program; fails with its standard error if it exits with another status than 0.
pub fn stdout_of(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().display().to_string();
    let out = command.output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        let reason = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        let reason = if reason.is_empty() {
            out.status.to_string()
        } else {
            reason
        };
        return Err(format!("{program}: {reason}").into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_program_and_contains_its_standard_error_or_status() {
        let sh = |script: &str| {
            stdout_of(Command::new("sh").args(["-c", script])).map_err(|e| e.to_string())
        };
        assert_eq!(sh("echo yes").unwrap(), "yes");
        assert_eq!(sh("echo no >&2; exit 3").unwrap_err(), "sh: no");
        assert_eq!(sh("exit 3").unwrap_err(), "sh: exit status: 3");
        assert!(stdout_of(&mut Command::new("/nowhere")).is_err());
    }
}
