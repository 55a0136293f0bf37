//! The one error type: a kind, and a place where there is one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong ([`ErrorKind`]) and where: file and byte offset, as far as they are known.
///
/// ```
/// use anamnesis_template::{ErrorKind, Limits, Template};
///
/// let error = Template::from_bytes(b"GIF89a", &Limits::default()).unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Malformed(_)));
/// assert!(error.remedy().unwrap().contains("record"));
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    offset: Option<u64>,
}

/// The kinds of failure. Match on these; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes are not a template, or break its rules.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A template that this version does not read.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// Reading on would cost more than the caller's [`Limits`](crate::Limits) allow.
    #[error("limit: {what} needs {needed}, and `{knob}` allows {allowed}")]
    Limit {
        /// The thing that was asked for.
        what: String,
        /// How much of it the file asked for.
        needed: u64,
        /// How much the limits allow.
        allowed: u64,
        /// The field of [`Limits`](crate::Limits) that decides.
        knob: &'static str,
    },
    /// What the caller gave cannot be in a template: a path out of the model's root, a range behind a file's end.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Templates of different models cannot be merged.
    #[error("conflict: {0}")]
    Conflict(String),
}

impl Error {
    /// An error of this kind whose place is not known yet.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
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

    /// What the caller may not give, a file may not hold.
    #[must_use]
    pub(crate) fn or_malformed(mut self) -> Self {
        if let ErrorKind::Invalid(what) = &mut self.0.kind {
            self.0.kind = ErrorKind::Malformed(std::mem::take(what));
        }
        self
    }

    /// Names the file, unless a deeper layer already did.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Names the byte offset, unless a deeper layer already did.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Byte offset in the file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What a person can do about it, where that follows from the kind.
    pub fn remedy(&self) -> Option<&'static str> {
        match &self.0.kind {
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => Some("check the path"),
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Some("name another file, or replace it (--overwrite, or `Template::save`)")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::StorageFull => {
                Some("free space, or write elsewhere")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Some("check the file's permissions")
            }
            ErrorKind::Malformed(_) => {
                Some("the template is damaged or is none; predict or record it anew")
            }
            ErrorKind::Unsupported(_) => {
                Some("read it with the version that wrote it, or predict or record it anew")
            }
            ErrorKind::Limit { .. } => {
                Some("raise the limit if you trust the template (--no-limits, or `Limits`)")
            }
            ErrorKind::Conflict(_) => {
                Some("merge templates of one model only; predict or record the stale one anew")
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

/// A name of a file, quoted for a message: control characters escaped, cut after 120 characters.
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
