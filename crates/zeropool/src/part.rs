//! Parts of a buffer that several threads, or several reads in flight, fill concurrently, and the memory that parts and views
//! share.
//!
//! Guarantees of this file:
//!
//! 1. The parts of a memory cover disjoint ranges of its bytes: [`Buffer::split`] and [`DividedBuffer::part`] divide it so,
//!    and a part is neither cloned nor created elsewhere, except of the only view of its bytes.
//! 2. While parts or views exist, the owner of the memory is neither read nor written: it is in an `Arc` that only they
//!    hold, and is used for its lifetime alone. Bytes are accessed through the pointer that was derived once.
//! 3. The address of the bytes does not change when the owner is moved: a buffer's are in its slab, and another owner is not
//!    moved.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::buffer::Buffer;

/// The bytes of a buffer, or of another owner, which parts and views divide among themselves.
pub(crate) struct PartMemory {
    base: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Buffer(Buffer),
    /// Dropped for its effect only.
    Other(#[expect(dead_code, reason = "holds the memory")] OtherOwner),
}

/// Made by `Box::into_raw`. A pointer instead of a box, because moving a box would end the borrow that the bytes are of.
struct OtherOwner(*mut dyn Send);

impl Drop for OtherOwner {
    fn drop(&mut self) {
        // SAFETY: the pointer is a box's, is dropped once, and its bytes are no longer used: parts and views hold the memory
        // that this is a part of.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A part sends a `Buffer` to other threads, which requires these traits.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Buffer>();
};

// SAFETY: parts use the bytes exclusively, like a `Box<[u8]>`, and views read them. A buffer is `Send` (checked above), and so
// is another owner.
unsafe impl Send for PartMemory {}
// SAFETY: as above. `&PartMemory` gives no access to the owner, which is moved out or dropped by the last holder.
unsafe impl Sync for PartMemory {}

// a panic can leave bytes half written, which no invariant depends on
impl UnwindSafe for PartMemory {}
impl RefUnwindSafe for PartMemory {}

impl PartMemory {
    pub(crate) fn of_buffer(mut buffer: Buffer) -> Arc<Self> {
        // derived from a mutable borrow, before the buffer is shared: parts write through this pointer
        let bytes = NonNull::from(&mut buffer[..]);
        Arc::new(Self {
            base: bytes.cast(),
            len: bytes.len(),
            owner: Owner::Buffer(buffer),
        })
    }

    fn of_owner<O: AsMut<[u8]> + Send + 'static>(owner: O) -> Arc<Self> {
        let pointer = Box::into_raw(Box::new(owner));
        let owner = OtherOwner(pointer);
        // SAFETY: the pointer is a box's, and nothing else uses it before it is dropped.
        let bytes = NonNull::from(unsafe { &mut *pointer }.as_mut());
        Arc::new(Self {
            base: bytes.cast(),
            len: bytes.len(),
            owner: Owner::Other(owner),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes the buffer out of its memory if this is its last holder.
    pub(crate) fn try_unwrap(memory: Arc<Self>) -> Result<Buffer, Arc<Self>> {
        // before the attempt, which would drop the other owner if this is its last holder
        if let Owner::Other(_) = memory.owner {
            return Err(memory);
        }
        match Arc::try_unwrap(memory)?.owner {
            Owner::Buffer(buffer) => Ok(buffer),
            Owner::Other(_) => unreachable!("checked above"),
        }
    }

    /// The bytes of a view.
    #[inline]
    pub(crate) fn view(&self, range: &Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        let start = self.base.as_ptr().wrapping_add(range.start);
        // SAFETY: the range lies in initialised bytes that stay mapped while `self` lives. No part has a byte of a view
        // (guarantee 1), so that nothing writes them.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }
}

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
    /// The first byte's offset in the memory.
    offset: usize,
    len: usize,
    memory: Arc<PartMemory>,
}

/// Memory from which parts of any range are obtained, each byte once: of a buffer, or of another owner.
///
/// ```
/// use zeropool::{BufferPool, DividedBuffer};
///
/// let mut divided = BufferPool::new().get(100).divide();
/// let mut name = divided.part(40..60).expect("no other part has these bytes");
/// name.fill(1);
/// assert!(divided.part(59..61).is_none());
/// let rest = divided.part(60..100).expect("no other part has these bytes");
///
/// let mut of_a_vec = DividedBuffer::of_owner(vec![7; 10]);
/// assert_eq!(of_a_vec.part(0..10).expect("the first part")[..], [7; 10]);
/// ```
pub struct DividedBuffer {
    memory: Arc<PartMemory>,
    /// The ranges of all parts, sorted, adjacent ones merged.
    parts: Vec<Range<usize>>,
}

impl Buffer {
    /// Divides the buffer into parts of `part_len` bytes; the last part has the remaining bytes. An empty buffer has one
    /// empty part.
    ///
    /// # Panics
    ///
    /// If `part_len` is 0.
    #[must_use]
    pub fn split(self, part_len: usize) -> Vec<BufferPart> {
        let memory = PartMemory::of_buffer(self);
        let len = memory.len;
        let part_at = |offset: usize| BufferPart {
            offset,
            len: part_len.min(len - offset),
            memory: Arc::clone(&memory),
        };
        (0..len.max(1)).step_by(part_len).map(part_at).collect()
    }

    /// Makes the buffer divisible into parts of any range.
    #[must_use]
    pub fn divide(self) -> DividedBuffer {
        DividedBuffer {
            memory: PartMemory::of_buffer(self),
            parts: Vec::new(),
        }
    }
}

impl DividedBuffer {
    /// The bytes of another owner: a `Vec`, a file that is mapped for writing. It is dropped with the last part.
    pub fn of_owner<O: AsMut<[u8]> + Send + 'static>(owner: O) -> Self {
        Self {
            memory: PartMemory::of_owner(owner),
            parts: Vec::new(),
        }
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// These bytes; `None` if an earlier part has some of them, or they exceed the memory.
    pub fn part(&mut self, range: Range<usize>) -> Option<BufferPart> {
        if range.start > range.end || range.end > self.memory.len {
            return None;
        }
        // an empty part shares no byte with another
        if !range.is_empty() {
            let next = self.parts.partition_point(|part| part.end <= range.start);
            if self
                .parts
                .get(next)
                .is_some_and(|part| part.start < range.end)
            {
                return None;
            }
            match next.checked_sub(1).map(|before| &mut self.parts[before]) {
                // parts are mostly obtained in order, and then this list is short
                Some(before) if before.end == range.start => before.end = range.end,
                _ => self.parts.insert(next, range.clone()),
            }
        }
        Some(BufferPart {
            offset: range.start,
            len: range.len(),
            memory: Arc::clone(&self.memory),
        })
    }
}

impl BufferPart {
    /// A part of the bytes of a view.
    ///
    /// The view was the only one of its bytes, and is not used any more.
    pub(crate) fn of_only_view(memory: Arc<PartMemory>, range: Range<usize>) -> Self {
        Self {
            offset: range.start,
            len: range.len(),
            memory,
        }
    }

    /// The offset of the part in its buffer, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The memory, and where in it the bytes are that are now a view's.
    pub(crate) fn into_view(self) -> (Arc<PartMemory>, Range<usize>) {
        (self.memory, self.offset..self.offset + self.len)
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
                let next = Arc::ptr_eq(&part.memory, &first.memory) && part.offset == end;
                end = part.offset + part.len;
                next
            };
            let is_buffer = matches!(first.memory.owner, Owner::Buffer(_));
            // no view of an empty range, and no other divider: with other holders the count would be larger
            let count = Arc::strong_count(&first.memory);
            is_buffer
                && parts.iter().all(follows)
                && end == first.memory.len
                && count == parts.len()
        });
        if !whole {
            return Err(parts);
        }
        let last = parts.pop().expect("`whole` implies a first part");
        drop(parts);
        PartMemory::try_unwrap(last.memory)
            .map_err(|_| unreachable!("the other parts, which were all holders, were dropped"))
    }

    fn start(&self) -> *mut u8 {
        self.memory.base.as_ptr().wrapping_add(self.offset)
    }
}

impl Deref for BufferPart {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a range of the memory's initialised bytes, which stay mapped while this part holds the memory. By
        // guarantees 1 and 2, nothing else reads or writes them.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for BufferPart {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start(), self.len) }
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

impl fmt::Debug for DividedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DividedBuffer")
            .field("len", &self.memory.len)
            .field("parts", &self.parts)
            .finish()
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

    #[test]
    fn parts_of_any_ranges_share_no_byte() {
        let pool = BufferPool::new();
        let mut divided = pool.get(100).divide();
        let mut parts: Vec<_> = [50..60, 0..10, 60..70, 10..10, 20..30, 10..20]
            .map(|range| divided.part(range).unwrap())
            .into();
        for taken in [0..1, 9..11, 5..55, 29..31, 69..70, 0..100, 25..26] {
            assert!(divided.part(taken.clone()).is_none(), "{taken:?}");
        }
        for (range, byte) in [(30..50, 1), (70..100, 2)] {
            let mut part = divided.part(range).unwrap();
            part.fill(byte);
            parts.push(part);
        }
        let reversed = std::ops::Range { start: 5, end: 4 };
        assert!(divided.part(reversed).is_none() && divided.part(100..101).is_none());
        drop(divided);
        // the empty part is a holder as well
        parts.retain(|part| !part.is_empty());
        parts.sort_by_key(BufferPart::offset);
        let whole = BufferPart::join(parts).unwrap();
        assert!(whole[30..50] == [1; 20] && whole[70..] == [2; 30]);
    }

    #[test]
    fn a_view_of_no_bytes_keeps_the_parts_from_being_joined() {
        let mut divided = BufferPool::new().get(8).divide();
        let (whole, view) = (
            divided.part(0..8).unwrap(),
            divided.part(0..0).unwrap().freeze(),
        );
        drop(divided);
        let parts = BufferPart::join(vec![whole]).unwrap_err();
        drop(view);
        assert!(BufferPart::join(parts).is_ok());
    }

    #[test]
    fn the_only_view_of_bytes_becomes_a_part() {
        let mut divided = BufferPool::new().get(16).divide();
        let [a, b] = [0..8, 8..16].map(|range| divided.part(range).unwrap().freeze());
        let mut a = a.try_into_part().unwrap();
        a.fill(3);
        let other = b.clone();
        let b = b.try_into_part().unwrap_err();
        drop(other);
        // it was shared, and stays so: the clone may have been sliced
        assert!(b.try_into_part().is_err());
        let slice = a.freeze().slice(2..4);
        assert_eq!(slice[..], [3; 2]);
        assert!(slice.try_into_part().is_err());
    }

    #[test]
    fn another_owner_is_dropped_with_the_last_part() {
        struct Dropped(Vec<u8>, Arc<std::sync::atomic::AtomicBool>);
        impl AsMut<[u8]> for Dropped {
            fn as_mut(&mut self) -> &mut [u8] {
                &mut self.0
            }
        }
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.1.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let dropped = Arc::default();
        let mut divided = DividedBuffer::of_owner(Dropped(vec![5; 10], Arc::clone(&dropped)));
        let is_dropped = || dropped.load(std::sync::atomic::Ordering::SeqCst);
        let mut part = divided.part(0..10).unwrap();
        drop(divided);
        part[9] = 6;
        let view = part.freeze();
        let view = view.try_unwrap().unwrap_err();
        let parts = BufferPart::join(vec![view.try_into_part().unwrap()]).unwrap_err();
        assert!(parts[0][8..] == [5, 6] && !is_dropped());
        drop(parts);
        assert!(is_dropped());
    }
}
