//! A buffer that is only read, by many.

use std::fmt;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;

use crate::buffer::Buffer;

/// A part, or all, of a buffer that is not written any more: cheap to clone, to slice and to send. The memory returns
/// to its pool with the last of them.
///
/// ```
/// use zeropool::BufferPool;
///
/// let pool = BufferPool::new();
/// let mut buffer = pool.get(11);
/// buffer.copy_from_slice(b"some tensor");
/// let shared = buffer.freeze();
/// let tensor = shared.slice(5..);
/// let bytes: bytes::Bytes = tensor.clone().into(); // no copy
/// assert_eq!(&bytes[..], b"tensor");
/// assert_eq!(bytes.as_ptr(), tensor.as_ptr());
/// ```
#[derive(Clone)]
pub struct Shared {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Shared {
    pub(crate) fn new(buffer: Buffer) -> Self {
        let range = 0..buffer.len();
        Self {
            buffer: Arc::new(buffer),
            range,
        }
    }

    /// A part of it, without copying.
    ///
    /// # Panics
    ///
    /// If the range is not within it.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let len = self.range.len();
        let after = |n: usize| n.checked_add(1).expect("an end that is a length");
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => after(before),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => after(last),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len,
        };
        assert!(start <= end && end <= len, "{start}..{end} of {len} bytes");
        let from = self.range.start;
        Self {
            buffer: Arc::clone(&self.buffer),
            range: from + start..from + end,
        }
    }

    /// The buffer, to write into it again, if nobody else shares it.
    ///
    /// It is the whole buffer, with the length that it had when it was frozen, even if this was a slice of it.
    ///
    /// # Errors
    ///
    /// Itself, if there are others.
    pub fn try_unwrap(self) -> Result<Buffer, Self> {
        let range = self.range;
        Arc::try_unwrap(self.buffer).map_err(|buffer| Self { buffer, range })
    }

    /// A copy of its bytes: a `Vec` has to own memory of its allocator. [`Bytes`] needs no copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        <[u8]>::to_vec(self)
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Shared {
    fn from(buffer: Buffer) -> Self {
        buffer.freeze()
    }
}

impl From<Shared> for Bytes {
    /// Without copying: the memory returns to its pool with the last `Bytes`.
    fn from(shared: Shared) -> Self {
        Self::from_owner(shared)
    }
}

impl From<Buffer> for Bytes {
    /// Without copying: the memory returns to its pool with the last `Bytes`.
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("range", &self.range)
            .field("buffer", &self.buffer)
            .finish()
    }
}
