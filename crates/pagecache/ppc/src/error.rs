//! The error type of this crate: a kind, and the file it concerns.

use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure ([`ErrorKind`]), and the file or directory concerned.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", .path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
pub struct Error {
    kind: ErrorKind,
    path: Option<PathBuf>,
}

/// The kinds of failure. Programs match on the kind; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The kernel or the privileges of this process do not permit the operation; the text names what does.
    #[error("not available: {0}")]
    Unavailable(String),
    /// An invalid argument, such as a path that is no directory or a template of another model.
    #[error("invalid: {0}")]
    Invalid(String),
    /// A file was replaced or changed since its directory was scanned.
    #[error("stale: {0}")]
    Stale(String),
    /// A policy failed and was deregistered.
    #[error("policy: {0}")]
    Policy(String),
    /// A resource limit was exceeded.
    #[error("limit: {0}")]
    Limit(String),
}

impl Error {
    /// An error of this kind, without a path.
    pub fn new(kind: impl Into<ErrorKind>) -> Self {
        Self {
            kind: kind.into(),
            path: None,
        }
    }

    /// Adds the path of the file, unless an inner layer already did.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The file or directory concerned, if known.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// An [`ErrorKind::Invalid`] error.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid(what.into()))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl From<anamnesis_os::Error> for Error {
    /// A path that is not a control group is an invalid argument; other failures are the system's.
    fn from(error: anamnesis_os::Error) -> Self {
        let (path, error) = error.into_parts();
        let error = match error.kind() {
            io::ErrorKind::InvalidInput => Self::invalid(error.to_string()),
            _ => Self::from(error),
        };
        error.in_file(&path)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::new(io::Error::from(errno))
    }
}
