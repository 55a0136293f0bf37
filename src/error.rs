//! The one error type: a kind, and always a place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong ([`ErrorKind`]) and where: file, format and byte offset, as far as they are known.
///
/// ```
/// use anamnesis::{Checkpoint, ErrorKind};
///
/// let err = Checkpoint::from_bytes(b"<!DOCTYPE html><html>".to_vec()).unwrap_err();
/// assert!(matches!(err.kind(), ErrorKind::UnknownFormat { .. }));
/// assert!(err.to_string().contains("HTML"));
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    format: Option<&'static str>,
    offset: Option<u64>,
}

/// The kinds of failure. Match on these; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system or the caller's reader failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No reader knows these bytes. `looks_like` says what they resemble.
    #[error("not a tensor file: {looks_like}")]
    UnknownFormat {
        /// What the first bytes look like.
        looks_like: String,
    },
    /// The file breaks its format's rules.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The file is (or may be) valid, and this version does not read it.
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
        /// The field of [`Limits`](crate::Limits) that decides; `budget` is the buffer pool's.
        knob: &'static str,
    },
    /// A pickle names a global that is not data. Nothing was called.
    #[error(
        "refused: the pickle names the global `{module}.{name}`, which is not on the list of plain data; \
         loading this file with an unrestricted unpickler would run it"
    )]
    RefusedGlobal {
        /// Module of the global.
        module: String,
        /// Name inside the module.
        name: String,
    },
    /// A checkpoint of several files lacks one.
    #[error("missing part: {0}")]
    MissingPart(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl ErrorKind {
    /// A short stable name, as the command's `{"error":{"kind":…}}` prints it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Io(_) => "io",
            Self::UnknownFormat { .. } => "unknown_format",
            Self::Malformed(_) => "malformed",
            Self::Unsupported(_) => "unsupported",
            Self::Limit { .. } => "limit",
            Self::RefusedGlobal { .. } => "refused_global",
            Self::MissingPart(_) => "missing_part",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Error {
    /// An error of this kind whose place is not known yet.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            kind,
            path: None,
            format: None,
            offset: None,
        }))
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(what.into()))
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported(what.into()))
    }

    /// A caller's mistake, such as a buffer of the wrong length.
    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, what.into()).into()
    }

    /// Puts what the message is about in front of it.
    pub(crate) fn about(mut self, subject: &str) -> Self {
        if let ErrorKind::Malformed(what) | ErrorKind::Unsupported(what) = &mut self.0.kind {
            *what = format!("{subject}: {what}");
        }
        self
    }

    /// Names the file, unless a deeper layer already did.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Names the format, unless a deeper layer already did.
    #[must_use]
    pub fn in_format(mut self, format: &'static str) -> Self {
        self.0.format.get_or_insert(format);
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

    /// The format that was being read (`"gguf"`, `"safetensors"`, …).
    pub fn format(&self) -> Option<&'static str> {
        self.0.format
    }

    /// Byte offset in the file (in the unpacked member, where the message names one).
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What a person can do about it, where that follows from the kind. What is not supported says so
    /// itself.
    pub fn remedy(&self) -> Option<&'static str> {
        match &self.0.kind {
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => Some("check the path"),
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Some("name another file, or replace it (--overwrite, or `Remember::overwrite`)")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::StorageFull => {
                Some("free space, or write elsewhere")
            }
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Some("check the file's permissions")
            }
            ErrorKind::UnknownFormat { .. } => {
                Some("safetensors, GGUF, NPY, NPZ and PyTorch files are read")
            }
            ErrorKind::Malformed(_) => {
                Some("the file is damaged or was written wrongly; fetch it again or re-export it")
            }
            ErrorKind::Limit { knob: "budget", .. } => Some(
                "give the pool a larger budget, load fewer tensors, or let them be lent (--lend, or `Load::own`)",
            ),
            ErrorKind::Limit { .. } => {
                Some("raise the limit if you trust the file (--no-limits, or `Limits`)")
            }
            ErrorKind::RefusedGlobal { .. } => Some(
                "do not load this file elsewhere unless you trust its author; ask for safetensors",
            ),
            ErrorKind::MissingPart(_) => Some("fetch the missing file into the same directory"),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(path) = &inner.path {
            write!(f, "{}: ", path.display())?;
        }
        if let Some(format) = inner.format {
            write!(f, "{format}: ")?;
        }
        write!(f, "{}", inner.kind)?;
        if let Some(offset) = inner.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("path", &self.0.path)
            .field("format", &self.0.format)
            .field("offset", &self.0.offset)
            .finish()
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
        Self::new(ErrorKind::Io(e))
    }
}
