//! Failures of a remote file.

use std::fmt;
use std::io;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: what kind, and a message that says what to do about it where something can be done. Messages name neither
/// tokens nor the queries of URLs, which may be signatures.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL is none that this crate opens.
    Invalid,
    /// There is no such file, repository or revision.
    NotFound,
    /// The server requires credentials, or others than it got.
    Denied,
    /// The server limits the rate of requests for longer than is waited for.
    RateLimited,
    /// The file is not the one that was opened.
    Changed,
    /// The server lacks what is needed, such as ranges or a listing.
    Unsupported,
    /// The server's answer breaks the protocol, or leads where it must not.
    Refused,
    /// No connection, or the answer broke off, more often than is retried.
    Network,
    /// [`RemoteOptions::offline`](crate::RemoteOptions::offline) is set, and no cache on this machine has what is read.
    Offline,
    /// The server is too slow.
    TimedOut,
    /// An object exists that is not to be replaced.
    Exists,
    /// The caller ended the operation.
    Cancelled,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    pub(crate) fn changed(what: &str) -> Self {
        let message = format!("the file changed since it was opened ({what}); open it again");
        Self::new(ErrorKind::Changed, message)
    }

    /// The error of a request that is not sent.
    pub(crate) fn offline() -> Self {
        Self::new(
            ErrorKind::Offline,
            "no request is sent (offline), and no cache on this machine has this: allow requests, or download it",
        )
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "cancelled")
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Denied => io::ErrorKind::PermissionDenied,
            ErrorKind::RateLimited => io::ErrorKind::QuotaExceeded,
            ErrorKind::Changed => io::ErrorKind::StaleNetworkFileHandle,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Refused => io::ErrorKind::InvalidData,
            ErrorKind::Network => io::ErrorKind::ConnectionAborted,
            ErrorKind::Offline => io::ErrorKind::NetworkDown,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Exists => io::ErrorKind::AlreadyExists,
            // not `Interrupted`, which readers of `std` take as a request to try again
            ErrorKind::Cancelled => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

/// Text of a server or of a library in a message: at most 240 characters of one line, control characters escaped, without the
/// query of any URL.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 240;
    let mut out = String::new();
    let mut query = false;
    // bounded in front too: most of a hostile text may be a query, of which nothing is shown
    for c in text.chars().take(8 * MOST) {
        if out.chars().count() >= MOST {
            out.push('…');
            break;
        }
        match c {
            '?' => query = true,
            c if query && !(c.is_whitespace() || matches!(c, ')' | '"' | '\'' | '>')) => continue,
            _ => query = false,
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else if !query {
            out.push(c);
        }
    }
    out
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // several libraries repeat their cause in their own message
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    shown(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_control_characters_are_not_shown() {
        let text = "no answer (https://h/a?X-Signature=secret) \u{1b}[31m";
        assert_eq!(shown(text), "no answer (https://h/a) \\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 241);
    }
}
