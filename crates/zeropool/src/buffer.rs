//! A buffer that goes back to its pool.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::engine::Engine;
use crate::shared::Shared;
use crate::slab::Block;

/// Bytes from a pool, to which they return when this is dropped: on any thread, after the last handle of the pool is
/// gone (the memory then goes to the system), and while a panic unwinds.
///
/// All of its capacity is initialised memory. What is in it is unspecified: zeros, or what an earlier user of the same
/// pool left, but never another pool's or another process's bytes; see
/// [`get_zeroed`](crate::BufferPool::get_zeroed) and [`zero_on_return`](crate::Builder::zero_on_return).
///
/// From 4096 bytes up the address and the capacity are multiples of 4096, as direct I/O wants them; the address is one
/// of 64 below that. A buffer that is forgotten (`mem::forget`) leaks its memory and its part of the budget, and
/// with them what every buffer keeps alive: its slab, of which other buffers may be parts, and its pool's books. Its
/// content is not wiped.
pub struct Buffer {
    /// `None` only while it is dropped.
    block: Option<Block>,
    len: usize,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(mut block: Block, len: usize) -> Self {
        block.expose(len);
        Self {
            block: Some(block),
            len,
        }
    }

    #[inline]
    fn block(&self) -> &Block {
        self.block
            .as_ref()
            .expect("a buffer has its block until it is dropped")
    }

    #[inline]
    fn block_mut(&mut self) -> &mut Block {
        self.block
            .as_mut()
            .expect("a buffer has its block until it is dropped")
    }

    /// Bytes in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it may have: its size class.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block().capacity()
    }

    /// Keeps the first `len` bytes. Does nothing if there are no more.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Sets the length. What is new at the end is unspecified, as all content of a new buffer.
    ///
    /// # Panics
    ///
    /// If `len` is more than the [`capacity`](Self::capacity).
    #[inline]
    pub fn resize(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "a buffer of {} bytes cannot hold {len}",
            self.capacity()
        );
        self.block_mut().expose(len);
        self.len = len;
    }

    /// Writes zeros over it, where it is not zero already because the memory is new or was wiped.
    pub(crate) fn zeroed(mut block: Block, len: usize) -> Self {
        let dirty = block.dirty().min(len);
        block.bytes_mut(dirty).fill(0);
        Self::new(block, len)
    }

    /// Makes it read-only and cheap to clone, without copying. The bytes return to the pool with the last clone.
    #[must_use]
    pub fn freeze(self) -> Shared {
        Shared::new(self)
    }

    /// A copy of its bytes: a `Vec` has to own memory of its allocator. To keep them without copying, see
    /// [`freeze`](Self::freeze).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        <[u8]>::to_vec(self)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            Engine::put(block);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.block().bytes(self.len)
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.block_mut().bytes_mut(len)
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
        // not the bytes: they are many, and may be secret
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}
