//! Exit statuses, and the end of a verb that failed.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use anamnesis::source::shown_path;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::messages;
use crate::output::{Stdout, json};
use crate::shown_path::shown;

/// The result of a verb whose failures, if any, have been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Success: exit status 0.
    Done,
    /// Failure, already reported: exit status 1.
    Failed,
    /// Failure of a verb whose status 1 is an answer, already reported: exit status 2.
    Unreadable,
    /// Invalid arguments, which only reading showed and which have been reported: exit status 2.
    Invalid,
    /// Interrupted by SIGINT, SIGTERM or SIGHUP: exit status 130.
    Interrupted,
    /// The verb ran a child process and returns its exit status.
    #[cfg(target_os = "linux")]
    Child(std::process::ExitStatus),
}

/// An error that ends a verb and has not been reported yet.
pub(crate) enum RunError {
    /// The verb failed.
    Failure(Failure),
    /// Writing to standard output failed.
    Output(io::Error),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Writes the report about files that are changed already: where that fails, the files are as they should be, and the failure says so.
pub(crate) fn report_after<W: Write>(
    done: &str,
    out: &mut W,
    write: impl FnOnce(&mut W) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let written = write(out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(RunError::Output(e)) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(output_failure(&e).after(done).into())
        }
        written => written,
    }
}

/// The failure of writing to standard output.
fn output_failure(error: &io::Error) -> Failure {
    let what = format!("standard output: {error}");
    Failure::new("io", what, "check the destination of standard output")
}

/// Runs what opens models, and has no effect if it fails, again while another run replaces one of them.
pub(crate) fn again<T, E: MayBeReplaced>(run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    anamnesis::again_if_replaced(E::is_replaced, run)
}

/// An error that may say that another run has replaced a model.
pub(crate) trait MayBeReplaced {
    /// Whether it does.
    fn is_replaced(&self) -> bool;
}

impl MayBeReplaced for anamnesis::Error {
    fn is_replaced(&self) -> bool {
        self.is_replaced()
    }
}

impl MayBeReplaced for Failure {
    fn is_replaced(&self) -> bool {
        Self::is_replaced(self)
    }
}

impl MayBeReplaced for RunError {
    fn is_replaced(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_replaced())
    }
}

impl Failure {
    /// The result of a verb that this failure ends, once it is reported.
    pub(crate) fn completion(&self) -> Completion {
        match self.is_of_arguments() {
            true => Completion::Invalid,
            false => Completion::Failed,
        }
    }

    /// Ends a verb: the document of the failure under `--json`, its message, and the result.
    pub(crate) fn end(
        &self,
        json: bool,
        interrupt: &Interrupt,
        out: &mut Stdout,
    ) -> Result<Completion, RunError> {
        if json {
            json::write_failure(self, out)?;
        }
        // standard output first, so that a message on a terminal follows what was shown before it
        out.flush()?;
        self.report();
        Ok(match interrupt.requested() {
            true => Completion::Interrupted,
            false => self.completion(),
        })
    }
}

/// Reports a pending failure and returns the exit status. A closed pipe counts as success, so that
/// `anamnesis inspect … | head` does not fail.
pub(crate) fn status(result: Result<Completion, RunError>) -> u8 {
    match result {
        Ok(Completion::Done) => 0,
        Ok(Completion::Failed) => 1,
        Ok(Completion::Unreadable | Completion::Invalid) => 2,
        Ok(Completion::Interrupted) => 130,
        #[cfg(target_os = "linux")]
        Ok(Completion::Child(status)) => {
            use std::os::unix::process::ExitStatusExt;
            // a child that was ended by signal n gives 128 + n, as in shells
            let code = status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal))
                .unwrap_or(1);
            u8::try_from(code).unwrap_or(1)
        }
        Err(RunError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(RunError::Output(e)) => {
            output_failure(&e).report();
            1
        }
        Err(RunError::Failure(failure)) => {
            failure.report();
            status(Ok(failure.completion()))
        }
    }
}

/// Whether a text has a part of a value that its shown form lacks.
fn repeats(text: &str, value: &str, shown: &Path) -> bool {
    let shown = shown.to_string_lossy();
    let is_end = |c: char| !c.is_alphanumeric();
    let mut parts = value.split(is_end).filter(|part| !part.is_empty());
    parts.any(|part| !shown.contains(part) && text.contains(part))
}

/// Prints clap's help, version or argument error, and returns its exit status. `words` are the arguments.
pub(crate) fn argument_error(message: &clap::Error, words: &[OsString]) -> u8 {
    let mut text = message.render().to_string();
    // clap repeats the values of arguments, and one may be a URL in the place of another thing
    let mut has_secret = false;
    // a parser's own text may have parts of a value, from which a URL cannot be told any more
    let reason = std::error::Error::source(message).map(ToString::to_string);
    for word in words.iter().filter_map(|word| word.to_str()) {
        let (_, value) = word.split_once('=').unwrap_or_default();
        for value in [word, value] {
            if let Cow::Owned(safe) = shown_path(Path::new(value)) {
                has_secret = true;
                if let Some(reason) = reason
                    .as_deref()
                    .filter(|reason| repeats(reason, value, &safe))
                {
                    text = text.replace(reason, "it is not valid");
                }
                text = text.replace(value, &shown(&safe));
            }
        }
    }
    if messages::are_kept() && message.exit_code() != 0 {
        // without the usage of a program that was not called
        let text = text.trim_start_matches("error: ");
        let text = text.split("\n\n").next().unwrap_or(text);
        Failure::new("invalid_argument", text, "see `anamnesis help`").report();
        return 2;
    }
    let printed = match has_secret {
        false => message.print(),
        true => io::stderr().lock().write_all(text.as_bytes()),
    };
    match printed {
        // `anamnesis --help | head` closes the pipe as well
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => u8::try_from(message.exit_code()).unwrap_or(2),
    }
}
