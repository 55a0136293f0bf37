//! The one error type: a kind, and the file or thing it is about.

use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong ([`ErrorKind`]), and with which file or thing.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", .path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
pub struct Error {
    kind: ErrorKind,
    path: Option<PathBuf>,
}

/// The kinds of failure. Match on these; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// This kernel or these privileges do not give what was asked for; the text says what does.
    #[error("not available: {0}")]
    Unavailable(String),
    /// What the caller gave cannot be meant: a path that is no directory, a template of another model.
    #[error("invalid: {0}")]
    Invalid(String),
    /// A file is no longer the one that was looked at.
    #[error("stale: {0}")]
    Stale(String),
    /// A policy broke the rules and lost its registration.
    #[error("policy: {0}")]
    Policy(String),
    /// Going on would cost more than is allowed.
    #[error("limit: {0}")]
    Limit(String),
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: impl Into<ErrorKind>) -> Self {
        Self {
            kind: kind.into(),
            path: None,
        }
    }

    /// Names the file, unless a deeper layer already did.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The file, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the caller gave cannot be meant.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid(what.into()))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::new(io::Error::from(errno))
    }
}
