//! Mapped bytes that own what they lie in.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::Source;

/// A range of a source's [mapped](Source::mapped) bytes, with the source: the file stays open and mapped while this value
/// lives. Cheap to clone and to send.
///
/// As for every map, the file must not be truncated meanwhile: see [`Checkpoint::open`](crate::Checkpoint::open).
#[derive(Clone)]
pub struct MappedBytes {
    source: Arc<dyn Source>,
    range: Range<usize>,
}

impl MappedBytes {
    /// This range of a source; `None` if its bytes are not addressable, or it has fewer.
    pub fn new(source: Arc<dyn Source>, range: Range<usize>) -> Option<Self> {
        source.mapped()?.get(range.clone())?;
        Some(Self { source, range })
    }

    /// The range of these bytes, if they are part of what the source has mapped.
    pub(crate) fn find(source: &Arc<dyn Source>, bytes: &[u8]) -> Option<Self> {
        let map = source.mapped()?;
        let start = bytes.as_ptr().addr().checked_sub(map.as_ptr().addr())?;
        let range = start..start.checked_add(bytes.len())?;
        // the same memory: both slices exist, so that equal addresses and lengths are the same bytes
        map.get(range.clone())
            .filter(|found| std::ptr::eq(*found, bytes))?;
        Some(Self {
            source: Arc::clone(source),
            range,
        })
    }

    /// The source that the bytes are of.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Where they are in it.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // a source that stops to give its bytes breaks the rules of `Source`: no bytes, instead of a panic
        let map = self.source.mapped().unwrap_or_default();
        map.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedBytes")
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
