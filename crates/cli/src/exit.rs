//! Exit statuses and failure messages.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use anamnesis::quote::{escape, shown_text};
use anamnesis::source::shown_path;
use anamnesis::{Note, Remedy};
use serde::Serialize;

use crate::messages;
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
        self.is_replaced
    }
}

impl MayBeReplaced for RunError {
    fn is_replaced(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_replaced)
    }
}

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
    /// Whether the arguments are at fault, and not a file.
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
            of_arguments: false,
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

    /// Says that the arguments are at fault, of an error that the library calls one of arguments.
    pub(crate) fn of_invalid_arguments(mut self) -> Self {
        self.of_arguments |= self.kind == "invalid_argument";
        self
    }

    /// The result of a verb that this failure ends, once it is reported.
    pub(crate) fn completion(&self) -> Completion {
        match self.of_arguments {
            true => Completion::Invalid,
            false => Completion::Failed,
        }
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

thread_local! {
    /// The failures of a run whose messages are kept.
    static KEPT: RefCell<Vec<Failure>> = const { RefCell::new(Vec::new()) };
}

/// The failures that were kept on this thread since the last call.
pub(crate) fn kept_failures() -> Vec<Failure> {
    KEPT.take()
}

/// A note, with its remedy in this command's flags.
pub(crate) fn note_text(note: &Note) -> String {
    with_remedy(note.text(), note.remedy())
}

/// Why a weight is refused, with its remedy in this command's flags. For verbs that make weights.
pub(crate) fn refusal_text(error: &anamnesis::Error) -> String {
    with_remedy(&error.to_string(), error.remedy())
}

fn with_remedy(text: &str, remedy: Option<Remedy>) -> String {
    match remedy {
        Some(remedy) => format!("{text}; {}", remedy_text(remedy)),
        None => text.to_owned(),
    }
}

/// Words a remedy with this command's flags where it has one, and as the library does otherwise.
pub(crate) fn remedy_text(remedy: Remedy) -> String {
    match remedy {
        Remedy::AllowOverwrite => {
            "choose another path, or replace the file with --overwrite".into()
        }
        Remedy::EnlargePoolBudget => {
            "load fewer tensors with --filter, or borrow mapped bytes with --borrow-mapped".into()
        }
        Remedy::RunAgain => "run this again, when the other run has ended".into(),
        Remedy::OpenFewerFiles => {
            "raise the limit of open files (`ulimit -n`), or write larger shards with --shard-size"
                .into()
        }
        Remedy::RaiseLimit { .. } => {
            "if the file is trusted, disable the limits with --no-limits".into()
        }
        Remedy::KeepOpaque => {
            "to read the tensors around such objects without calling anything, use --opaque; load \
             this file elsewhere only if you trust its author"
                .into()
        }
        Remedy::AssumePlain => {
            "convert it with the library that wrote it; to ignore what is not known, use --assume plain"
                .into()
        }
        Remedy::LeaveOut => "leave the tensor out with --exclude or --filter".into(),
        Remedy::LeaveOutOrAssumePlain => {
            "leave all of its parts out with --exclude, or copy them as tensors of their own with --assume plain".into()
        }
        Remedy::LeaveOutOrRename => {
            "leave the tensor out with --exclude or --filter, or rename it with --rename".into()
        }
        Remedy::LeaveOutOrDequantise => {
            "dequantise it with --dtype bf16, write a GGUF, or leave the tensor out with --exclude or --filter".into()
        }
        Remedy::RenameApart => {
            "to swap two names, take a third: --rename A=C --rename B=A --rename C=B".into()
        }
        Remedy::DequantiseShare => {
            "dequantise it with --dtype bf16, or leave the weight out with --exclude or --filter".into()
        }
        Remedy::ConvertAligned => {
            "write another file with `anamnesis convert PATH -o OUT --alignment N`".into()
        }
        Remedy::CastOrWriteVoid => {
            "cast it with --dtype f32 --cast, or write items without a type with --void".into()
        }
        Remedy::LeaveOutOrReadItems => {
            "leave the tensor out with --exclude or --filter, or read its \
                                        items as a dtype of their width with --void-as"
                .into()
        }
        Remedy::ReadItems { dtype } => format!("if you know the dtype, give {dtype} to --void-as"),
        Remedy::RenameOrOpenAlone => "rename it, or open it alone with --single".into(),
        Remedy::RecoverEdit => "complete it with `anamnesis edit PATH --recover`".into(),
        Remedy::ConvertInstead => "write another file with `anamnesis convert PATH -o OUT`".into(),
        Remedy::EditCopy => {
            "give this name a file of its own with --copy, or write another file with `anamnesis convert PATH -o OUT`".into()
        }
        Remedy::NameAsTransformers => "--names hf makes those of transformers".into(),
        Remedy::AllowRequests => "requests are sent without --offline".into(),
        // remedies without a flag: the library words them for people, without its API
        other => other.to_string(),
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
            of_arguments: false,
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
