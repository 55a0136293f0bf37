//! One failure of a verb: its document and its message.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;

use anamnesis::quote::{escape, shown_text};
use serde::Serialize;

use crate::messages;
use crate::remedies::remedy_text;
use crate::shown_path::shown;

/// The kind of errors of arguments.
const INVALID_ARGUMENT: &str = "invalid_argument";

/// One failure: an `error` object under `--json` and a message on standard error.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    kind: &'static str,
    message: Box<str>,
    path: Option<Box<str>>,
    format: Option<&'static str>,
    offset: Option<u64>,
    remedy: Option<Box<str>>,
    // not a path: a file may be called `-`, and scripts read `path` as one
    #[serde(skip)]
    stdin: bool,
    /// Whether the arguments are at fault, and not a file: the exit status is 2.
    #[serde(skip)]
    of_arguments: bool,
    /// See [`anamnesis::Error::is_replaced`].
    #[serde(skip)]
    is_replaced: bool,
    /// The library's error, for callers of a verb.
    #[serde(skip)]
    error: Option<std::sync::Arc<anamnesis::Error>>,
}

impl Failure {
    pub(crate) fn new(
        kind: &'static str,
        message: impl Into<Box<str>>,
        remedy: &'static str,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self {
            kind,
            message: shown_text(&message.into()).into(),
            path: None,
            format: None,
            offset: None,
            remedy,
            stdin: false,
            of_arguments: kind == INVALID_ARGUMENT,
            is_replaced: false,
            error: None,
        }
    }

    /// An error of the system about a file.
    pub(crate) fn io(error: io::Error, path: &Path) -> Self {
        Self::from(anamnesis::Error::from(error).in_file(path))
    }

    /// The same, after what was done in spite of it.
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.message = format!("{done}: {}", self.message).into();
        self
    }

    /// The same with another remedy, where the error's own is none of this verb.
    pub(crate) fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Says that another run has replaced the model, if the failure is that its file is not there.
    #[cfg(target_os = "linux")]
    pub(crate) fn replaced_if_gone(mut self) -> Self {
        let path = self.path.as_deref().map(Path::new);
        self.is_replaced |= self.kind == "io" && path.is_some_and(|path| !path.exists());
        self
    }

    /// Says that nothing is to be run again: there has been an effect.
    pub(crate) fn at_last(mut self) -> Self {
        self.is_replaced = false;
        self
    }

    /// Says that the arguments are at fault: the exit status is 2 in every verb.
    pub(crate) fn of_arguments(mut self) -> Self {
        self.of_arguments = true;
        self
    }

    /// Whether the arguments are at fault.
    pub(crate) fn is_of_arguments(&self) -> bool {
        self.of_arguments
    }

    /// Whether another run has replaced the model.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// The path and the message, for a line that continues.
    pub(crate) fn text(&self) -> String {
        match &self.path {
            Some(path) => format!("{path}: {}", self.message),
            None => self.message.to_string(),
        }
    }

    /// Adds the path, unless the failure already has one.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| shown(path).into());
        self
    }

    /// Adds that the failure occurred in standard input.
    pub(crate) fn in_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// The kind, as documents have it.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The library's error, if the failure is one, with the path of the failure.
    pub(crate) fn into_error(self) -> Option<anamnesis::Error> {
        let error = std::sync::Arc::into_inner(self.error?)?;
        Some(match &self.path {
            Some(path) => error.in_file(Path::new(&**path)),
            None => error,
        })
    }

    /// Writes the failure to standard error: path, message, offset and remedy.
    pub(crate) fn report(&self) {
        if messages::are_kept() {
            KEPT.with_borrow_mut(|kept| kept.push(self.clone()));
            return;
        }
        let mut line = String::from("anamnesis: ");
        let stdin = self.stdin.then_some("standard input");
        for place in [stdin, self.path.as_deref(), self.format]
            .into_iter()
            .flatten()
        {
            line.push_str(&escape(place));
            line.push_str(": ");
        }
        line.push_str(&escape(&self.message));
        if let Some(offset) = self.offset {
            line.push_str(&format!(" (at byte {offset})"));
        }
        if let Some(remedy) = &self.remedy {
            line.push_str("\n  help: ");
            line.push_str(remedy);
        }
        // in one write: standard error is unbuffered, and other processes may write to it too
        line.push('\n');
        // standard error is the last place to report to: a failed write cannot be reported
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

impl From<anamnesis::Error> for Failure {
    fn from(error: anamnesis::Error) -> Self {
        Self {
            kind: error.kind().name(),
            message: shown_text(&match error.note() {
                Some(note) => format!("{}; {note}", error.kind()),
                None => error.kind().to_string(),
            })
            .into(),
            path: error.path().map(|path| shown(path).into()),
            format: error.format(),
            offset: error.offset(),
            remedy: error.remedy().map(|remedy| remedy_text(remedy).into()),
            stdin: false,
            of_arguments: error.kind().name() == INVALID_ARGUMENT,
            is_replaced: error.is_replaced(),
            error: Some(std::sync::Arc::new(error)),
        }
    }
}

impl From<anamnesis::template::Error> for Failure {
    fn from(error: anamnesis::template::Error) -> Self {
        use anamnesis::template::ErrorKind::{Conflict, Malformed, Unsupported};
        let message = error.kind().to_string();
        // the library has an error kind of the same name for each kind of a template error; only the
        // remedies differ: a damaged template is predicted or recorded again, a damaged checkpoint is fetched again
        let own = matches!(error.kind(), Malformed(_) | Unsupported(_) | Conflict(_));
        let own = error.remedy().filter(|_| own).map(str::to_owned);
        let failure = Self::from(anamnesis::Error::from(error));
        Self {
            message: shown_text(&message).into(),
            remedy: own.map(Into::into).or(failure.remedy),
            ..failure
        }
    }
}

thread_local! {
    /// The failures of a run whose messages are kept.
    static KEPT: RefCell<Vec<Failure>> = const { RefCell::new(Vec::new()) };
}

/// The failures that were kept on this thread since the last call.
pub(crate) fn kept_failures() -> Vec<Failure> {
    KEPT.take()
}
