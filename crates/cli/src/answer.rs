//! The answer of a verb to a program: its document, and its messages as data.

use std::ffi::OsString;

use anamnesis::{Error, Progress};

use crate::failure::{Failure, kept_failures};
use crate::output::Stdout;
use crate::{Interrupt, messages, run_into};

/// The answer of a verb: what [`answer`] returns.
#[derive(Debug)]
#[non_exhaustive]
pub struct VerbAnswer {
    /// The exit status that the command would have.
    pub status: u8,
    /// The bytes that the command would write to standard output: with `--json` one document, as `docs/json.md` describes it.
    pub output: Vec<u8>,
    /// The lines that the command would write to standard error, without failures.
    pub messages: Vec<String>,
    /// The failures, in the order in which they were found.
    pub failures: Vec<AnswerFailure>,
}

/// A failure of a verb.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnswerFailure {
    /// The kind, as in the `error` of documents.
    pub kind: &'static str,
    /// The path, if there is one, and what is wrong.
    pub message: String,
    /// The library's error, where the failure is one.
    pub error: Option<Error>,
}

/// Runs the command as [`run_with`](crate::run_with) does, but writes nothing to standard output and standard error: both are
/// returned. `progress` is called from the threads of the run; a run is ended by the token of its [`Interrupt`].
///
/// ```
/// use anamnesis::CancelToken;
/// use anamnesis_cli::{Interrupt, answer};
///
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gguf/plain_v3.gguf");
/// let interrupt = Interrupt::by_token(&CancelToken::new());
/// let answer = answer(["anamnesis", "check", "--json", path], &interrupt, |_| {});
/// assert!(answer.status <= 1 && answer.output.starts_with(b"{") && answer.failures.is_empty());
/// ```
///
/// The verbs that start a program, and `ppc`, write their messages to standard error as ever.
pub fn answer(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    interrupt: &Interrupt,
    progress: impl Fn(Progress) + Send + Sync + 'static,
) -> VerbAnswer {
    let words: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let mut out = Stdout::kept();
    let listener = std::sync::Arc::new(progress);
    // a run that panicked may have left some
    drop(kept_failures());
    let (status, lines) = messages::keep(Some(listener), || run_into(&words, interrupt, &mut out));
    VerbAnswer {
        status,
        output: out.into_kept(),
        messages: lines,
        failures: kept_failures()
            .into_iter()
            .map(AnswerFailure::from)
            .collect(),
    }
}

impl From<Failure> for AnswerFailure {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind(),
            message: failure.text(),
            error: failure.into_error(),
        }
    }
}
