//! What is wrong with a header, before it is known where in the file the header stands.

use crate::error::Error;

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) struct Fault {
    /// Offset of the spot, from where the text (later: the magic) begins.
    pub(super) at: usize,
    kind: Kind,
    what: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Malformed,
    Unsupported,
    Object,
}

impl Fault {
    pub(super) fn malformed(at: usize, what: impl Into<String>) -> Self {
        Self {
            at,
            kind: Kind::Malformed,
            what: what.into(),
        }
    }

    pub(super) fn unsupported(at: usize, what: impl Into<String>) -> Self {
        Self {
            at,
            kind: Kind::Unsupported,
            what: what.into(),
        }
    }

    pub(super) fn object(at: usize) -> Self {
        let what = "object arrays hold a pickle, which is never unpickled";
        Self {
            at,
            kind: Kind::Object,
            what: what.into(),
        }
    }

    /// Counts the offset from `n` bytes further in front.
    pub(super) fn behind(mut self, n: usize) -> Self {
        self.at += n;
        self
    }

    /// The reason, if this is an array of Python objects: nothing is wrong with its neighbours.
    pub(crate) fn object_array(&self) -> Option<&str> {
        (self.kind == Kind::Object).then_some(&self.what)
    }

    /// The error for a header that begins at `start`, of this member of an archive.
    pub(crate) fn error(self, start: u64, member: Option<&str>) -> Error {
        let what = match member {
            Some(member) => format!("member {member}: {}", self.what),
            None => self.what,
        };
        let error = match self.kind {
            Kind::Malformed => Error::malformed(what),
            Kind::Unsupported | Kind::Object => Error::unsupported(what),
        };
        error.at(start.saturating_add(self.at as u64))
    }
}
