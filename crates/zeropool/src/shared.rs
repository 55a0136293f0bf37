//! A read-only buffer with several owners.

use std::fmt;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::part::{BufferPart, PartMemory};

/// A read-only view of a buffer or of a range of it: cheap to clone, to slice and to send. The memory returns to its pool
/// when the last view is dropped.
///
/// ```
/// use zeropool::BufferPool;
///
/// let pool = BufferPool::new();
/// let mut buffer = pool.get(11);
/// buffer.copy_from_slice(b"some tensor");
/// let shared = buffer.freeze();
/// let tensor = shared.slice(5..);
/// let bytes: bytes::Bytes = tensor.clone().into(); // without copying
/// assert_eq!(&bytes[..], b"tensor");
/// assert_eq!(bytes.as_ptr(), tensor.as_ptr());
/// ```
pub struct SharedBuffer {
    memory: Arc<PartMemory>,
    range: Range<usize>,
    /// Whether another view may have some of these bytes. Set while `self` is borrowed and read when it is consumed, and what
    /// ends the borrow orders the two: a relaxed access suffices.
    is_shared: AtomicBool,
}

impl Buffer {
    /// Makes the buffer read-only and cheap to clone, without copying.
    #[must_use]
    pub fn freeze(self) -> SharedBuffer {
        let range = 0..self.len();
        SharedBuffer::of_part(PartMemory::of_buffer(self), range)
    }
}

impl BufferPart {
    /// Makes the part read-only and cheap to clone, without copying.
    #[must_use]
    pub fn freeze(self) -> SharedBuffer {
        let (memory, range) = self.into_view();
        SharedBuffer::of_part(memory, range)
    }
}

impl SharedBuffer {
    /// The only view of bytes that were a part's.
    fn of_part(memory: Arc<PartMemory>, range: Range<usize>) -> Self {
        Self {
            memory,
            range,
            is_shared: AtomicBool::new(false),
        }
    }

    /// A further view of some of these bytes.
    fn view(&self, range: Range<usize>) -> Self {
        // both views are marked, since either may be the one that is to become a part
        self.is_shared.store(true, Ordering::Relaxed);
        Self {
            memory: Arc::clone(&self.memory),
            range,
            is_shared: AtomicBool::new(true),
        }
    }

    /// A view of a range of this view, without copying.
    ///
    /// # Panics
    ///
    /// If the range exceeds this view.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let len = self.range.len();
        let after = |n: usize| {
            n.checked_add(1)
                .expect("a range that ends below the largest number")
        };
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
        assert!(
            start <= end && end <= len,
            "range {start}..{end} exceeds a view of {len} bytes"
        );
        let from = self.range.start;
        self.view(from + start..from + end)
    }

    /// Returns the buffer for writing, if this is the only view of it.
    ///
    /// It is the whole buffer, with the length that it had when it was frozen, even if this view is of a range.
    ///
    /// # Errors
    ///
    /// This view, if there are others.
    pub fn try_unwrap(self) -> Result<Buffer, Self> {
        let (range, is_shared) = (self.range, self.is_shared);
        PartMemory::try_unwrap(self.memory).map_err(|memory| Self {
            memory,
            range,
            is_shared,
        })
    }

    /// Returns these bytes for writing, without copying, if no other view was ever made of them: neither a clone nor a slice.
    /// Other bytes of the same buffer may be in use.
    ///
    /// # Errors
    ///
    /// This view, if there were others.
    pub fn try_into_part(self) -> Result<BufferPart, Self> {
        if self.is_shared.load(Ordering::Relaxed) {
            return Err(self);
        }
        Ok(BufferPart::of_only_view(self.memory, self.range))
    }

    /// Copies the bytes, as a `Vec` must own memory of its allocator. Conversion into [`Bytes`] copies nothing.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        <[u8]>::to_vec(self)
    }
}

impl Clone for SharedBuffer {
    fn clone(&self) -> Self {
        self.view(self.range.clone())
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.view(&self.range)
    }
}

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for SharedBuffer {
    fn from(buffer: Buffer) -> Self {
        buffer.freeze()
    }
}

impl From<SharedBuffer> for Bytes {
    /// Converts without copying. The memory returns to its pool when the last `Bytes` is dropped.
    fn from(shared: SharedBuffer) -> Self {
        Self::from_owner(shared)
    }
}

impl From<Buffer> for Bytes {
    /// Converts without copying. The memory returns to its pool when the last `Bytes` is dropped.
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer")
            .field("range", &self.range)
            .field("buffer_len", &self.memory.len())
            .finish()
    }
}
