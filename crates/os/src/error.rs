//! The error of queries that read a named file of the system.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the system, and the file that was read or written.
///
/// Functions that take an open file or no file return [`io::Error`] instead.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    error: io::Error,
}

impl Error {
    pub(crate) fn new(path: &Path, error: impl Into<io::Error>) -> Self {
        Self {
            path: path.to_owned(),
            error: error.into(),
        }
    }

    pub(crate) fn message(path: &Path, kind: io::ErrorKind, text: &'static str) -> Self {
        Self::new(path, io::Error::new(kind, text))
    }

    /// The file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The system's error.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }

    /// Path and system error, for conversion into another error type.
    pub fn into_parts(self) -> (PathBuf, io::Error) {
        (self.path, self.error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.error.kind(), error)
    }
}
