//! A buffer that returns to its pool when it is dropped.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::recycle;
use crate::slab::Object;

/// Bytes from a pool. Dropping the buffer returns them, on any thread and also while a panic unwinds. After the pool's
/// last handle was dropped, the memory is released to the system instead.
///
/// All of the capacity is initialised memory. The content of a new buffer is unspecified: zeros, or what an earlier
/// buffer *of the same pool* contained, never bytes of another pool or process; see
/// [`get_zeroed`](crate::BufferPool::get_zeroed) and [`zero_on_return`](crate::PoolBuilder::zero_on_return).
///
/// For lengths of 4096 bytes and more, the address and the capacity are multiples of 4096, as direct I/O requires; for
/// shorter ones, of 64. A buffer passed to `mem::forget` leaks its memory and its charge on the budget, and keeps its
/// slab and the pool's state allocated. Its content is not wiped.
pub struct Buffer {
    /// `None` only during the drop.
    object: Option<Object>,
    len: usize,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(mut object: Object, len: usize) -> Self {
        object.expose(len);
        Self {
            object: Some(object),
            len,
        }
    }

    /// A buffer of zeros. Writes only what may be nonzero: not new memory, nor what was wiped.
    pub(crate) fn zeroed(mut object: Object, len: usize) -> Self {
        let dirty = object.dirty().min(len);
        object.bytes_mut(dirty).fill(0);
        Self::new(object, len)
    }

    #[inline]
    fn object(&self) -> &Object {
        self.object
            .as_ref()
            .expect("a buffer has its object until it is dropped")
    }

    #[inline]
    fn object_mut(&mut self) -> &mut Object {
        self.object
            .as_mut()
            .expect("a buffer has its object until it is dropped")
    }

    /// The length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The capacity in bytes: the size class's.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.object().capacity()
    }

    /// Shortens the buffer to its first `len` bytes. No effect if it is not longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Sets the length. Bytes that are added at the end have unspecified content.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the [`capacity`](Self::capacity).
    #[inline]
    pub fn resize(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "length {len} exceeds the buffer's capacity of {} bytes",
            self.capacity()
        );
        self.object_mut().expose(len);
        self.len = len;
    }

    /// Copies the bytes. A `Vec` must own memory of its allocator, so it cannot take over the buffer; to keep the bytes
    /// without copying, see [`freeze`](Self::freeze).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        <[u8]>::to_vec(self)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            recycle::put(object);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.object().bytes(self.len)
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.object_mut().bytes_mut(len)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // without the bytes, which may be megabytes or secret
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}
