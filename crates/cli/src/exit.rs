//! How the program ends: its exit codes, and what it says when something fails.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::output::text;

/// How a verb that ran to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Everything was done.
    Done,
    /// Something failed and was reported.
    Failed,
    /// Someone asked to stop.
    Interrupted,
    /// As a command that was started ended.
    #[cfg(target_os = "linux")]
    Of(std::process::ExitStatus),
}

/// Why a verb ended early.
pub(crate) enum Stop {
    /// Nothing more can be done; not reported yet.
    Failure(Failure),
    /// Standard output does not take more.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// One failure, as `--json` prints it and as standard error shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
    path: Option<String>,
    format: Option<&'static str>,
    offset: Option<u64>,
    remedy: Option<&'static str>,
    #[serde(skip)]
    stdin: bool,
}

impl Failure {
    pub(crate) fn new(
        kind: &'static str,
        message: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        let remedy = Some(remedy);
        Self {
            kind,
            message: message.into(),
            path: None,
            format: None,
            offset: None,
            remedy,
            stdin: false,
        }
    }

    /// Names the file, unless it is known.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.display().to_string());
        self
    }

    /// Says that standard input was read.
    pub(crate) fn in_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// The message for people: what, where, and what to do about it.
    pub(crate) fn report(&self) {
        let mut line = String::from("anamnesis: ");
        let stdin = self.stdin.then_some("standard input");
        for place in [stdin, self.path.as_deref(), self.format]
            .into_iter()
            .flatten()
        {
            line.push_str(&text::clean(place));
            line.push_str(": ");
        }
        line.push_str(&text::clean(&self.message));
        if let Some(offset) = self.offset {
            line.push_str(&format!(" (at byte {offset})"));
        }
        if let Some(remedy) = self.remedy {
            line.push_str("\n  help: ");
            line.push_str(remedy);
        }
        line.push('\n');
        // where this cannot be said, it cannot be said either that it could not
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

impl From<anamnesis::Error> for Failure {
    fn from(error: anamnesis::Error) -> Self {
        Self {
            kind: error.kind().name(),
            message: error.kind().to_string(),
            path: error.path().map(|p| p.display().to_string()),
            format: error.format(),
            offset: error.offset(),
            remedy: error.remedy(),
            stdin: false,
        }
    }
}

impl From<anamnesis::template::Error> for Failure {
    fn from(error: anamnesis::template::Error) -> Self {
        let (message, remedy) = (error.kind().to_string(), error.remedy());
        // the kinds have the names of the library's
        Self {
            message,
            remedy,
            ..anamnesis::Error::from(error).into()
        }
    }
}

/// The exit code of a run. A closed pipe is no failure: whoever reads has seen enough.
pub(crate) fn code(done: Result<Code, Stop>) -> ExitCode {
    match done {
        Ok(Code::Done) => ExitCode::SUCCESS,
        Ok(Code::Failed) => ExitCode::from(1),
        Ok(Code::Interrupted) => ExitCode::from(130),
        #[cfg(target_os = "linux")]
        Ok(Code::Of(status)) => {
            use std::os::unix::process::ExitStatusExt;
            // as shells tell a signal
            let code = status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal))
                .unwrap_or(1);
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        Err(Stop::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Stop::Output(e)) => {
            Failure::new(
                "io",
                format!("standard output: {e}"),
                "check where the output goes",
            )
            .report();
            ExitCode::from(1)
        }
        Err(Stop::Failure(failure)) => {
            failure.report();
            ExitCode::from(1)
        }
    }
}

/// Prints help, version or a usage error as clap words it.
pub(crate) fn usage(message: &clap::Error) -> ExitCode {
    match message.print() {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(1),
        _ => ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2)),
    }
}
