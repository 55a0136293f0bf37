//! What policies answer with: bytes of files.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file that shall be brought, or let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Io {
    /// The file, relative to the namespace's root.
    pub path: Arc<Path>,
    /// First byte.
    pub start: u64,
    /// How many.
    pub len: u64,
    /// The accelerator that the bytes are for: they are brought into memory near it.
    pub device: Option<u32>,
}

/// A list of [`Io`], or the tail of one: a policy that prefetches from here to the end of a template copies nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Ios {
    all: Arc<[Io]>,
    range: Range<usize>,
}

impl Ios {
    /// Those of `all` in `range`, cut to what there is.
    pub fn of(all: &Arc<[Io]>, range: Range<usize>) -> Self {
        let end = range.end.min(all.len());
        Self {
            all: Arc::clone(all),
            range: range.start.min(end)..end,
        }
    }

    /// The list that this is a part of.
    pub fn all(&self) -> &Arc<[Io]> {
        &self.all
    }

    /// Which part of [`all`](Self::all).
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Deref for Ios {
    type Target = [Io];

    fn deref(&self) -> &[Io] {
        &self.all[self.range.clone()]
    }
}

impl From<Vec<Io>> for Ios {
    fn from(ios: Vec<Io>) -> Self {
        Self {
            range: 0..ios.len(),
            all: ios.into(),
        }
    }
}

impl fmt::Debug for Ios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
