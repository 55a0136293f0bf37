//! Other programs.

use std::process::Command;

use crate::Failure;

/// What a program says that must succeed; why it did not, in its own words.
pub fn said(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().display().to_string();
    let out = command.output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        let why = if why.is_empty() {
            out.status.to_string()
        } else {
            why
        };
        return Err(format!("{program}: {why}").into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_says_why() {
        let sh =
            |line: &str| said(Command::new("sh").args(["-c", line])).map_err(|e| e.to_string());
        assert_eq!(sh("echo yes").unwrap(), "yes");
        assert_eq!(sh("echo no >&2; exit 3").unwrap_err(), "sh: no");
        assert_eq!(sh("exit 3").unwrap_err(), "sh: exit status: 3");
        assert!(said(&mut Command::new("/nowhere")).is_err());
    }
}
