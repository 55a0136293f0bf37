//! Parts of a buffer that several threads, or several reads in flight, fill concurrently.
//!
//! What this file guarantees:
//!
//! 1. The parts of a buffer cover disjoint ranges of its bytes: [`Buffer::split`] divides it so, and a part is neither
//!    cloned nor created elsewhere.
//! 2. While a part exists, the buffer itself is neither read nor written: it is in an `Arc` that only parts hold, and
//!    they use it for its lifetime alone.
//! 3. The address of the bytes does not change when the buffer is moved, as they are in its slab.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::buffer::Buffer;

/// A range of a buffer's bytes, owned, to be filled on any thread. [`join`](Self::join) makes the parts a buffer again. If
/// they are dropped instead, the memory returns to the pool with the last part.
///
/// ```
/// use zeropool::{BufferPart, BufferPool};
///
/// let mut parts = BufferPool::new().get(10_000).split(4096);
/// std::thread::scope(|scope| {
///     for part in &mut parts {
///         scope.spawn(|| part.fill(7));
///     }
/// });
/// let buffer = BufferPart::join(parts).expect("all parts, in order");
/// assert!(buffer.len() == 10_000 && buffer.iter().all(|byte| *byte == 7));
/// ```
pub struct BufferPart {
    base: NonNull<u8>,
    len: usize,
    /// The first byte's offset in the buffer.
    offset: usize,
    buffer: Arc<Buffer>,
}

/// A part sends its `Arc<Buffer>` to other threads, which requires these traits.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Buffer>();
};

// SAFETY: exclusive use of some bytes, like a `Box<[u8]>`, and an `Arc` of a buffer, which is `Send + Sync` (checked
// above).
unsafe impl Send for BufferPart {}
// SAFETY: `&BufferPart` gives shared access to those bytes only; the `Arc` of a buffer is `Sync`, as the buffer is both.
unsafe impl Sync for BufferPart {}

impl Buffer {
    /// Divides the buffer into parts of `part_len` bytes; the last part has the remaining bytes. An empty buffer has one
    /// empty part.
    ///
    /// # Panics
    ///
    /// If `part_len` is 0.
    #[must_use]
    pub fn split(mut self, part_len: usize) -> Vec<BufferPart> {
        // derived from `&mut self`, before the buffer is shared: the parts write through this pointer
        let start = self.as_mut_ptr();
        let len = self.len();
        let buffer = Arc::new(self);
        let part_at = |offset: usize| BufferPart {
            base: NonNull::new(start.wrapping_add(offset))
                .expect("a buffer is not at address zero"),
            len: part_len.min(len - offset),
            offset,
            buffer: Arc::clone(&buffer),
        };
        (0..len.max(1)).step_by(part_len).map(part_at).collect()
    }
}

impl BufferPart {
    /// The offset of the part in its buffer, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Joins the parts of a buffer.
    ///
    /// # Errors
    ///
    /// The parts, if they are not all parts of one buffer, in order.
    pub fn join(mut parts: Vec<Self>) -> Result<Buffer, Vec<Self>> {
        let mut end = 0;
        let whole = parts.first().is_some_and(|first| {
            let follows = |part: &Self| {
                let next = Arc::ptr_eq(&part.buffer, &first.buffer) && part.offset == end;
                end = part.offset + part.len;
                next
            };
            parts.iter().all(follows) && end == first.buffer.len()
        });
        if !whole {
            return Err(parts);
        }
        let last = parts.pop().expect("`whole` implies a first part");
        drop(parts);
        Arc::try_unwrap(last.buffer).map_err(|_| {
            unreachable!("the other parts were dropped, and only parts hold the buffer")
        })
    }
}

impl Deref for BufferPart {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `base` and `len` are a range of the buffer's initialised bytes, which stay mapped while this part holds
        // the buffer. By guarantees 1 and 2, nothing else reads or writes them.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for BufferPart {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for BufferPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPart")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferPool;

    #[test]
    fn split_and_join_give_the_same_buffer() {
        let pool = BufferPool::new();
        for (len, part_len, count) in [
            (0, 5, 1),
            (5, 5, 1),
            (11, 4, 3),
            (12, 4, 3),
            (1, usize::MAX, 1),
        ] {
            let mut parts = pool.get(len).split(part_len);
            assert_eq!(parts.len(), count);
            for (part, byte) in parts.iter_mut().zip(1..) {
                part.fill(byte);
            }
            let buffer = BufferPart::join(parts).unwrap();
            let expected: Vec<u8> = (0..len)
                .map(|i| u8::try_from(i / part_len + 1).unwrap())
                .collect();
            assert_eq!(*buffer, *expected);
        }
    }

    #[test]
    fn parts_that_are_mixed_unordered_or_incomplete_do_not_join() {
        let pool = BufferPool::new();
        let (mut a, mut b) = (pool.get(8).split(4), pool.get(8).split(4));
        std::mem::swap(&mut a[1], &mut b[1]);
        let mut a = BufferPart::join(a).unwrap_err();
        let mut b = BufferPart::join(b).unwrap_err();
        std::mem::swap(&mut a[1], &mut b[1]);
        a.swap(0, 1);
        let mut a = BufferPart::join(a).unwrap_err();
        a.remove(0);
        assert!(BufferPart::join(a).is_err() && BufferPart::join(Vec::new()).is_err());
        assert!(BufferPart::join(b).is_ok());
    }

    #[test]
    fn dropping_the_last_part_returns_the_buffer() {
        let pool = BufferPool::builder().budget(4096).build().unwrap();
        let mut parts = pool.get(4096).split(1000);
        let last = parts.pop().unwrap();
        std::thread::spawn(|| drop(parts)).join().unwrap();
        assert!(pool.try_get(1).is_err());
        drop(last);
        assert!(pool.try_get(1).is_ok());
    }
}
