//! The error type of this crate: a kind, the place of the failure, and what can be done about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::quote::{path_text, quote, shown_path};

mod remedy;

pub use remedy::Remedy;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure ([`ErrorKind`]) and its place: file, format and byte offset, as far as they are known.
///
/// ```
/// use anamnesis::{Checkpoint, ErrorKind};
///
/// let err = Checkpoint::from_bytes(b"<!DOCTYPE html><html>".to_vec()).unwrap_err();
/// assert!(matches!(err.kind(), ErrorKind::UnknownFormat { .. }));
/// assert!(err.to_string().contains("HTML"));
/// ```
pub struct Error(Box<ErrorContext>);

struct ErrorContext {
    kind: ErrorKind,
    path: Option<PathBuf>,
    format: Option<&'static str>,
    offset: Option<u64>,
    truncated: bool,
    note: Option<String>,
    /// Instead of the one that follows from the kind.
    remedy: Option<Remedy>,
}

/// The kinds of failure. Programs match on these; messages are for people and may change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system or the caller's reader failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The first bytes belong to no supported format. `looks_like` describes what they resemble.
    #[error("not a tensor file: {looks_like}")]
    UnknownFormat {
        /// The format that the first bytes suggest.
        looks_like: String,
    },
    /// The file breaks its format's rules.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The file is valid, or may be, but this version does not support what it holds.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The files say something about the stored weights that this version does not know: a tensor beside a weight, a setting,
    /// a marker, a layout. Weights that were made without it could be wrong.
    #[error("not known: {0}")]
    Unexplained(String),
    /// Continuing would cost more than the caller's [`Limits`](crate::Limits) allow.
    #[error("limit: {what} needs {needed}, which exceeds the limit `{limit}` of {allowed}")]
    Limit {
        /// The thing that exceeds the limit.
        what: String,
        /// The amount that is needed, in the limit's unit.
        needed: u64,
        /// The amount that the limit allows.
        allowed: u64,
        /// The field of [`Limits`](crate::Limits) that is exceeded; `budget` is the buffer pool's.
        limit: &'static str,
    },
    /// A pickle names a global that is not on the list of plain data types. No code was run.
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
    /// A file of a sharded or split checkpoint is absent.
    #[error("missing part: {0}")]
    MissingPart(String),
    /// Another process has replaced a checkpoint while it was read: what is beside it may be of the new one. Opening it again
    /// finds one of the two, whole.
    #[error("{0}")]
    Replaced(String),
    /// An argument of the caller is invalid, such as a buffer of the wrong length.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The checkpoint holds nothing of this name.
    #[error("there is no {what} {}", quote(name))]
    NotFound {
        /// The kind of thing that was looked up: `tensor` or `weight`.
        what: &'static str,
        /// The name that was looked up.
        name: String,
    },
    /// The caller cancelled the operation.
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
            Self::Unexplained(_) => "unexplained",
            Self::Limit { .. } => "limit",
            Self::RefusedGlobal { .. } => "refused_global",
            Self::MissingPart(_) => "missing_part",
            Self::Replaced(_) => "replaced",
            Self::InvalidArgument(_) => "invalid_argument",
            Self::NotFound { .. } => "not_found",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Error {
    /// An error of this kind, without file, format or offset.
    pub fn new(kind: ErrorKind) -> Self {
        // boxed: a `Result` of every parser step carries this type, and one pointer keeps it small
        Self(Box::new(ErrorContext {
            kind,
            path: None,
            format: None,
            offset: None,
            truncated: false,
            note: None,
            remedy: None,
        }))
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(what.into()))
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported(what.into()))
    }

    pub(crate) fn unexplained(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unexplained(what.into()))
    }

    pub(crate) fn invalid_argument(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument(what.into()))
    }

    /// A lookup of `name` failed; `what` is the kind of thing, such as `tensor`.
    pub(crate) fn not_found(what: &'static str, name: &str) -> Self {
        Self::new(ErrorKind::NotFound {
            what,
            name: name.to_owned(),
        })
    }

    /// A copy of an error that is kept, to be returned as well. `io::Error` has no `Clone`: the copy keeps its code, or its
    /// kind and text.
    pub(crate) fn duplicate(&self) -> Self {
        let kind = match &self.0.kind {
            // the code makes the kind and text again; an error that was made by a library has neither code nor
            // `Clone`
            ErrorKind::Io(e) => ErrorKind::Io(match e.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                #[cfg(feature = "remote")]
                None if let Some(remote) = remote(e) => remote.clone().into(),
                None if anamnesis_os::links::is_refused(e) => anamnesis_os::links::refused(),
                None => io::Error::new(e.kind(), e.to_string()),
            }),
            ErrorKind::UnknownFormat { looks_like } => ErrorKind::UnknownFormat {
                looks_like: looks_like.clone(),
            },
            ErrorKind::Malformed(what) => ErrorKind::Malformed(what.clone()),
            ErrorKind::Unsupported(what) => ErrorKind::Unsupported(what.clone()),
            ErrorKind::Unexplained(what) => ErrorKind::Unexplained(what.clone()),
            ErrorKind::Limit {
                what,
                needed,
                allowed,
                limit,
            } => ErrorKind::Limit {
                what: what.clone(),
                needed: *needed,
                allowed: *allowed,
                limit,
            },
            ErrorKind::RefusedGlobal { module, name } => ErrorKind::RefusedGlobal {
                module: module.clone(),
                name: name.clone(),
            },
            ErrorKind::MissingPart(what) => ErrorKind::MissingPart(what.clone()),
            ErrorKind::Replaced(what) => ErrorKind::Replaced(what.clone()),
            ErrorKind::InvalidArgument(what) => ErrorKind::InvalidArgument(what.clone()),
            ErrorKind::NotFound { what, name } => ErrorKind::NotFound {
                what,
                name: name.clone(),
            },
            ErrorKind::Cancelled => ErrorKind::Cancelled,
        };
        Self(Box::new(ErrorContext {
            kind,
            path: self.0.path.clone(),
            format: self.0.format,
            offset: self.0.offset,
            truncated: self.0.truncated,
            note: self.0.note.clone(),
            remedy: self.0.remedy,
        }))
    }

    /// Memory of this error: what a list of errors costs.
    pub(crate) fn memory(&self) -> u64 {
        let text = match &self.0.kind {
            ErrorKind::UnknownFormat { looks_like: text }
            | ErrorKind::Limit { what: text, .. }
            | ErrorKind::NotFound { name: text, .. }
            | ErrorKind::Malformed(text)
            | ErrorKind::Unsupported(text)
            | ErrorKind::Unexplained(text)
            | ErrorKind::MissingPart(text)
            | ErrorKind::Replaced(text)
            | ErrorKind::InvalidArgument(text) => text.capacity(),
            ErrorKind::RefusedGlobal { module, name } => module.capacity() + name.capacity(),
            // an error of the system holds a short text, if any
            ErrorKind::Io(_) | ErrorKind::Cancelled => 256,
        };
        let path = self.0.path.as_ref().map_or(0, PathBuf::capacity);
        let note = self.0.note.as_ref().map_or(0, String::capacity);
        (size_of::<ErrorContext>() + text + path + note + 64) as u64
    }

    /// Prefixes the message with what it concerns. Kinds without a free text stay as they are.
    pub(crate) fn context(mut self, subject: &str) -> Self {
        if let ErrorKind::Malformed(what)
        | ErrorKind::Unsupported(what)
        | ErrorKind::Unexplained(what)
        | ErrorKind::InvalidArgument(what) = &mut self.0.kind
        {
            *what = format!("{subject}: {what}");
        }
        self
    }

    /// Names the file, unless a deeper layer already did.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        // the innermost caller adds the file; outer layers have only a directory or an index
        // a URL without its secrets: errors are printed and logged
        self.0
            .path
            .get_or_insert_with(|| shown_path(path).into_owned());
        self
    }

    /// Adds the offset of what the error is about to an offset in it.
    #[must_use]
    pub(crate) fn shifted(mut self, start: u64) -> Self {
        self.0.offset = self.0.offset.map(|offset| offset.saturating_add(start));
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
        // a parser of a value gives the offset of the value, its caller the offset of the entry
        self.0.offset.get_or_insert(offset);
        self
    }

    /// States that the file ends before what it announces.
    #[must_use]
    pub(crate) fn of_truncated_file(mut self) -> Self {
        self.0.truncated = true;
        self
    }

    /// Whether the file ends before what it announces, as one does whose download was interrupted.
    ///
    /// ```
    /// use anamnesis::Checkpoint;
    ///
    /// let mut bytes = std::fs::read("fixtures/safetensors/sharded/model-00001-of-00002.safetensors")?;
    /// bytes.truncate(bytes.len() - 1);
    /// assert!(Checkpoint::from_bytes(bytes).unwrap_err().is_truncated());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_truncated(&self) -> bool {
        self.0.truncated
    }

    /// Whether another process has replaced the checkpoint while it was read: opening it again may succeed
    /// ([`again_if_replaced`](crate::again_if_replaced)).
    pub fn is_replaced(&self) -> bool {
        matches!(self.kind(), ErrorKind::Replaced(_))
    }

    /// States what can be done about it, where the kind alone does not decide that.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: Remedy) -> Self {
        self.0.remedy = Some(remedy);
        self
    }

    /// Adds what else the user has to know: what the failure left behind.
    #[must_use]
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.0.note.get_or_insert(note);
        self
    }

    /// The traces that the failure left behind, and their remedy; not part of the kind.
    pub fn note(&self) -> Option<&str> {
        self.0.note.as_deref()
    }

    /// The kind of this failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The format of the file (`"gguf"`, `"safetensors"`, …), where it is known.
    pub fn format(&self) -> Option<&'static str> {
        self.0.format
    }

    /// Byte offset in the file, or in the uncompressed member if the message names one.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The remedy for the user of a program, where an option or a change of the files helps. Not part of the message.
    pub fn remedy(&self) -> Option<Remedy> {
        if self.0.remedy.is_some() {
            return self.0.remedy;
        }
        match &self.0.kind {
            // remedies exist for what a user can change; other codes of the system say what happened
            #[cfg(feature = "remote")]
            ErrorKind::Io(e) if let Some(remote) = remote(e) => {
                // the other kinds' messages say what the server's user can do
                (remote.kind() == anamnesis_remote::ErrorKind::Offline)
                    .then_some(Remedy::AllowRequests)
            }
            ErrorKind::Io(e) => match e.kind() {
                io::ErrorKind::NotFound => Some(Remedy::CheckPath),
                io::ErrorKind::AlreadyExists => Some(Remedy::AllowOverwrite),
                io::ErrorKind::StorageFull => Some(Remedy::FreeSpace),
                _ if anamnesis_os::links::is_refused(e) => Some(Remedy::OpenTarget),
                io::ErrorKind::PermissionDenied => Some(Remedy::CheckPermissions),
                // a request that is not sent, to whose error a load has added the range; the system's own has a number
                io::ErrorKind::NetworkDown if e.raw_os_error().is_none() => {
                    Some(Remedy::AllowRequests)
                }
                // not of the system, which has other reasons
                io::ErrorKind::ResourceBusy if e.raw_os_error().is_none() => {
                    Some(Remedy::WaitForOtherRun)
                }
                // std has no kind for these
                #[cfg(unix)]
                _ if [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
                    .iter()
                    .any(|errno| e.raw_os_error() == Some(errno.raw_os_error())) =>
                {
                    Some(Remedy::OpenFewerFiles)
                }
                _ => None,
            },
            ErrorKind::NotFound { .. } => Some(Remedy::CheckName),
            ErrorKind::UnknownFormat { .. } => Some(Remedy::UseSupportedFormat),
            // no limit or option makes a damaged file readable
            ErrorKind::Malformed(_) => Some(Remedy::ReplaceFile),
            ErrorKind::Limit {
                // the pool's budget is no field of `Limits`, so raising a limit would not help
                limit: "budget",
                ..
            } => Some(Remedy::EnlargePoolBudget),
            ErrorKind::Limit { limit, .. } => Some(Remedy::RaiseLimit { limit }),
            ErrorKind::RefusedGlobal { .. } => Some(Remedy::KeepOpaque),
            ErrorKind::MissingPart(_) => Some(Remedy::AddMissingFile),
            ErrorKind::Replaced(_) => Some(Remedy::RunAgain),
            ErrorKind::Unexplained(_) => Some(Remedy::AssumePlain),
            // they say what to do instead, or the caller caused them
            ErrorKind::Unsupported(_) | ErrorKind::InvalidArgument(_) | ErrorKind::Cancelled => {
                None
            }
        }
    }
}

/// The error of a remote file in an error of its source.
#[cfg(feature = "remote")]
fn remote(e: &io::Error) -> Option<&anamnesis_remote::Error> {
    e.get_ref()?.downcast_ref()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(path) = &inner.path {
            write!(f, "{}: ", path_text(path))?;
        }
        if let Some(format) = inner.format {
            write!(f, "{format}: ")?;
        }
        write!(f, "{}", inner.kind)?;
        if let Some(offset) = inner.offset {
            write!(f, " (at byte {offset})")?;
        }
        if let Some(note) = &inner.note {
            write!(f, "; {note}")?;
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
        // by a file that was closed and is another one when it is opened again (`read::source::open_files`), and by a file server that
        // has lost one
        #[cfg(unix)]
        if e.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error()) {
            let what = "this file was changed, replaced or removed after it was opened";
            return Self::new(ErrorKind::Replaced(what.to_owned()));
        }
        Self::new(ErrorKind::Io(e))
    }
}

/// Converts an error of the template crate; kind, file and offset are kept.
impl From<anamnesis_template::Error> for Error {
    fn from(error: anamnesis_template::Error) -> Self {
        use anamnesis_template::ErrorKind as Kind;
        let own = match error.kind() {
            // an `io::Error` cannot be cloned
            Kind::Io(e) => io::Error::new(e.kind(), e.to_string()).into(),
            Kind::Malformed(what) | Kind::Conflict(what) => Self::malformed(what.clone()),
            Kind::Unsupported(what) => Self::unsupported(what.clone()),
            Kind::Limit {
                what,
                needed,
                allowed,
                limit,
            } => Self::new(ErrorKind::Limit {
                what: what.clone(),
                needed: *needed,
                allowed: *allowed,
                limit,
            }),
            Kind::Invalid(what) => Self::invalid_argument(what.clone()),
            other => Self::invalid_argument(other.to_string()),
        };
        // kinds are converted before the place is added, since the constructors have none
        let own = error.offset().into_iter().fold(own, Self::at);
        error
            .path()
            .into_iter()
            .fold(own, |own, path| own.in_file(path))
    }
}
