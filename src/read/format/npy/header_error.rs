//! Errors of the header parser. Their offsets count from the beginning of the header text until the caller adds
//! the offset of the text in the file.

use crate::base::error::Error;

pub(crate) type Result<T, E = HeaderError> = std::result::Result<T, E>;

/// An error in an NPY header, with an offset inside the header.
#[derive(Debug)]
pub(crate) struct HeaderError {
    /// Offset of the error in bytes, from the beginning of the text, or, after [`Self::shifted_by`], of the magic number.
    pub(super) at: usize,
    kind: HeaderErrorKind,
    what: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum HeaderErrorKind {
    Malformed,
    Unsupported,
    Object,
}

impl HeaderError {
    pub(super) fn malformed(at: usize, what: impl Into<String>) -> Self {
        Self {
            at,
            kind: HeaderErrorKind::Malformed,
            what: what.into(),
        }
    }

    pub(super) fn unsupported(at: usize, what: impl Into<String>) -> Self {
        Self {
            at,
            kind: HeaderErrorKind::Unsupported,
            what: what.into(),
        }
    }

    pub(super) fn object(at: usize) -> Self {
        let what = "an object array holds a pickle of Python objects, which is never unpickled";
        Self {
            at,
            kind: HeaderErrorKind::Object,
            what: what.into(),
        }
    }

    /// Makes the offset count from `n` bytes earlier.
    pub(super) fn shifted_by(mut self, n: usize) -> Self {
        self.at += n;
        self
    }

    /// The reason, if this is an array of Python objects. Only that array is refused then, not its archive.
    pub(crate) fn object_array(&self) -> Option<&str> {
        (self.kind == HeaderErrorKind::Object).then_some(&self.what)
    }

    /// The reason alone.
    pub(crate) fn reason(&self) -> &str {
        &self.what
    }

    /// The error with its offset in the file: the header begins at `start`, in this member if the file is an archive.
    pub(crate) fn error(self, start: u64, member: Option<&str>) -> Error {
        let what = match member {
            Some(member) => format!("member {member}: {}", self.what),
            None => self.what,
        };
        let error = match self.kind {
            HeaderErrorKind::Malformed => Error::malformed(what),
            // an object array is a valid file whose content is refused
            HeaderErrorKind::Unsupported | HeaderErrorKind::Object => Error::unsupported(what),
        };
        error.at(start.saturating_add(self.at as u64))
    }
}
