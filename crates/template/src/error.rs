//! The error type: a kind, and a place where one is known.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure ([`ErrorKind`]) and its place: file and byte offset, if known.
///
/// ```
/// use anamnesis_template::{ErrorKind, TemplateLimits, Template};
///
/// let error = Template::from_bytes(b"GIF89a", &TemplateLimits::default()).unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Malformed(_)));
/// assert!(error.remedy().unwrap().contains("record"));
/// ```
// boxed, so that a `Result` is not made larger by details that it mostly lacks
pub struct Error(Box<ErrorDetails>);

struct ErrorDetails {
    kind: ErrorKind,
    path: Option<PathBuf>,
    offset: Option<u64>,
}

/// The kinds of failure. Programs match on these; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A call of the operating system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes are not a template, or violate its format.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The template has a version that this crate does not read.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// Continuing would exceed the caller's [`TemplateLimits`](crate::TemplateLimits).
    #[error("limit: {what} needs {needed}, which exceeds the limit `{limit}` of {allowed}")]
    Limit {
        /// The thing that would exceed the limit.
        what: String,
        /// How much of it the file states.
        needed: u64,
        /// How much the limit allows.
        allowed: u64,
        /// The field of [`TemplateLimits`](crate::TemplateLimits).
        limit: &'static str,
    },
    /// An argument that no template can contain: a path outside of the model's root, a range that
    /// ends after its file.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Templates of different models cannot be merged.
    #[error("conflict: {0}")]
    Conflict(String),
}

impl Error {
    /// Creates an error whose place is not known yet.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            path: None,
            offset: None,
        }))
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(what.into()))
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid(what.into()))
    }

    /// Turns `Invalid` into `Malformed`: an argument that a caller may not pass is damage if a file
    /// contains it.
    #[must_use]
    pub(crate) fn or_malformed(mut self) -> Self {
        if let ErrorKind::Invalid(what) = &mut self.0.kind {
            self.0.kind = ErrorKind::Malformed(std::mem::take(what));
        }
        self
    }

    /// Sets the file, unless an inner layer has set it.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Sets the byte offset, unless an inner layer has set it.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file, if known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in the file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// A remedy for the failure, if its kind has one.
    pub fn remedy(&self) -> Option<&'static str> {
        match &self.0.kind {
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => Some("check the path"),
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Some("choose another file, or let `Template::save` replace it")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::StorageFull => {
                Some("free space, or write elsewhere")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Some("check the file's permissions")
            }
            ErrorKind::Malformed(_) => Some(
                "the file is damaged or is not a template: predict or record the template again",
            ),
            ErrorKind::Unsupported(_) => Some(
                "read it with the version that wrote it, or predict or record the template again",
            ),
            ErrorKind::Limit { .. } => {
                Some("raise the limit in `TemplateLimits` if the template is trusted")
            }
            ErrorKind::Conflict(_) => {
                Some("merge templates of one model only: predict or record the stale one again")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}", self.0.kind)?;
        if let Some(offset) = self.0.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self}: {:?})", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::new(e.into())
    }
}

/// Quotes a file name for a message: control characters are escaped, and it is truncated after 120
/// characters. U+202E would reverse the text after it.
pub(crate) fn quote(name: &str) -> String {
    let mut out = String::from("`");
    for (i, c) in name.chars().enumerate() {
        if i == 120 {
            out.push('…');
            break;
        }
        if c.is_control() || c == '\u{202e}' {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    out.push('`');
    out
}
