//! Parts of a buffer that several threads, or several reads in flight, fill at once.
//!
//! What this file guarantees:
//!
//! 1. The parts of a buffer cover disjoint runs of its bytes, because [`Buffer::split`] cuts them that way and a part is
//!    neither cloned nor made elsewhere.
//! 2. While a part exists nobody reads or writes the buffer itself: it lies in an `Arc` that only parts have, and they
//!    use it for its lifetime alone.
//! 3. The address of the bytes does not change when the buffer is moved: they are in its slab.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::buffer::Buffer;

/// Some of a buffer's bytes: owned, to be filled on any thread. The buffer comes back by [`join`](Self::join); parts
/// that are only dropped give its memory back to the pool, the last of them.
///
/// ```
/// use zeropool::{BufferPool, Part};
///
/// let mut parts = BufferPool::new().get(10_000).split(4096);
/// std::thread::scope(|scope| {
///     for part in &mut parts {
///         scope.spawn(|| part.fill(7));
///     }
/// });
/// let buffer = Part::join(parts).expect("all of them, in order");
/// assert!(buffer.len() == 10_000 && buffer.iter().all(|byte| *byte == 7));
/// ```
pub struct Part {
    base: NonNull<u8>,
    len: usize,
    /// Where it begins in the buffer.
    offset: usize,
    buffer: Arc<Buffer>,
}

/// What an `Arc<Buffer>` in a part needs to go from thread to thread.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Buffer>();
};

// SAFETY: exclusive use of some bytes, like a `Box<[u8]>`, and an `Arc` of a buffer, which is `Send + Sync` (checked
// above).
unsafe impl Send for Part {}
// SAFETY: `&Part` gives shared access to those bytes only; the `Arc` of a buffer is `Sync`, as the buffer is both.
unsafe impl Sync for Part {}

impl Buffer {
    /// Cuts it into parts of `piece` bytes, the last one of what is left: at least one, also of no bytes.
    ///
    /// # Panics
    ///
    /// If `piece` is 0.
    #[must_use]
    pub fn split(mut self, piece: usize) -> Vec<Part> {
        let start = self.as_mut_ptr();
        let len = self.len();
        let buffer = Arc::new(self);
        let cut = |offset: usize| Part {
            base: NonNull::new(start.wrapping_add(offset))
                .expect("bytes of a buffer are not at zero"),
            len: piece.min(len - offset),
            offset,
            buffer: Arc::clone(&buffer),
        };
        (0..len.max(1)).step_by(piece).map(cut).collect()
    }
}

impl Part {
    /// Where it begins in its buffer, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The buffer that these are the parts of.
    ///
    /// # Errors
    ///
    /// The parts, if they are not all parts of one buffer in their order.
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
        let last = parts.pop().expect("there is a first one");
        drop(parts);
        Arc::try_unwrap(last.buffer)
            .map_err(|_| unreachable!("all parts are gone but for this one"))
    }
}

impl Deref for Part {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `base` and `len` were cut from the buffer's initialised bytes, which live as long as the buffer held
        // here, and by 1. and 2. above nobody else has them.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Part {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(all(target_os = "linux", feature = "tokio-uring"))]
// SAFETY: the bytes are in a mapping that neither moves nor ends while the part exists, wherever the part itself is
// moved; all of them are initialised.
unsafe impl tokio_uring::buf::IoBuf for Part {
    fn stable_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len
    }

    fn bytes_total(&self) -> usize {
        self.len
    }
}

#[cfg(all(target_os = "linux", feature = "tokio-uring"))]
// SAFETY: as above; `&mut` is exclusive use of the bytes.
unsafe impl tokio_uring::buf::IoBufMut for Part {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {
        // every byte of the length is initialised, and no operation goes beyond it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferPool;

    #[test]
    fn parts_are_the_buffer() {
        let pool = BufferPool::new();
        for (len, piece, count) in [
            (0, 5, 1),
            (5, 5, 1),
            (11, 4, 3),
            (12, 4, 3),
            (1, usize::MAX, 1),
        ] {
            let mut parts = pool.get(len).split(piece);
            assert_eq!(parts.len(), count);
            for (part, byte) in parts.iter_mut().zip(1..) {
                part.fill(byte);
            }
            let buffer = Part::join(parts).unwrap();
            let expected: Vec<u8> = (0..len)
                .map(|i| u8::try_from(i / piece + 1).unwrap())
                .collect();
            assert_eq!(*buffer, *expected);
        }
    }

    #[test]
    fn parts_of_two_buffers_or_out_of_order_or_too_few_do_not_join() {
        let pool = BufferPool::new();
        let (mut a, mut b) = (pool.get(8).split(4), pool.get(8).split(4));
        std::mem::swap(&mut a[1], &mut b[1]);
        let mut a = Part::join(a).unwrap_err();
        let mut b = Part::join(b).unwrap_err();
        std::mem::swap(&mut a[1], &mut b[1]);
        a.swap(0, 1);
        let mut a = Part::join(a).unwrap_err();
        a.remove(0);
        assert!(Part::join(a).is_err() && Part::join(Vec::new()).is_err());
        assert!(Part::join(b).is_ok());
    }

    #[test]
    fn parts_that_are_dropped_give_their_memory_back() {
        let pool = BufferPool::builder().budget(4096).build().unwrap();
        let mut parts = pool.get(4096).split(1000);
        let last = parts.pop().unwrap();
        std::thread::spawn(|| drop(parts)).join().unwrap();
        assert!(pool.try_get(1).is_err());
        drop(last);
        assert!(pool.try_get(1).is_ok());
    }
}
