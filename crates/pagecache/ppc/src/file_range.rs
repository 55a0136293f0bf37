//! Ranges of files, and shared lists of them: what policies return.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// A byte range of a file to prefetch or evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file, relative to the root of the namespace.
    pub path: Arc<Path>,
    /// Offset of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Index of the accelerator that will consume the bytes. They are prefetched into memory of its NUMA node.
    pub device: Option<u32>,
}

/// A reference-counted list of [`FileRange`]s, or a slice of one.
///
/// Slices share their backing list. A policy that repeatedly prefetches "from here to the end of the template" therefore
/// copies nothing, and the supervisor validates the backing list only once.
#[derive(Clone, PartialEq, Eq)]
pub struct RangeList {
    backing: Arc<[FileRange]>,
    indices: Range<usize>,
}

impl RangeList {
    /// The entries of `backing` at `indices`, clamped to the length of `backing`.
    pub fn slice(backing: &Arc<[FileRange]>, indices: Range<usize>) -> Self {
        // clamped: indices come from policies, whose arithmetic must not end the runtime
        let end = indices.end.min(backing.len());
        Self {
            backing: Arc::clone(backing),
            indices: indices.start.min(end)..end,
        }
    }

    /// The list that this is a slice of.
    pub fn backing(&self) -> &Arc<[FileRange]> {
        &self.backing
    }

    /// The position of this slice in [`backing`](Self::backing).
    pub fn indices(&self) -> Range<usize> {
        self.indices.clone()
    }
}

impl Deref for RangeList {
    type Target = [FileRange];

    fn deref(&self) -> &[FileRange] {
        &self.backing[self.indices.clone()]
    }
}

impl From<Vec<FileRange>> for RangeList {
    fn from(ranges: Vec<FileRange>) -> Self {
        Self {
            indices: 0..ranges.len(),
            backing: ranges.into(),
        }
    }
}

impl fmt::Debug for RangeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
