//! Frozen buffers: views share the memory, keep it in use, convert to `Bytes` without a copy, and unwrap to the buffer.

use bytes::Bytes;
use zeropool::{BufferPool, SharedBuffer};

fn frozen(pool: &BufferPool) -> SharedBuffer {
    let mut buffer = pool.get(1000);
    buffer
        .iter_mut()
        .zip(0u8..=255)
        .for_each(|(byte, i)| *byte = i);
    buffer.freeze()
}

#[test]
fn slices_are_views_of_the_same_memory() {
    let pool = BufferPool::new();
    let all = frozen(&pool);
    let part = all.slice(10..20);
    let rest = part.slice(5..);
    assert_eq!(
        (&part[..3], &rest[..]),
        (&[10, 11, 12][..], &[15, 16, 17, 18, 19][..])
    );
    assert_eq!(rest.as_ptr(), all[15..].as_ptr());
    assert_eq!(&all.slice(..=2)[..], [0, 1, 2]);
    assert!(all.slice(1000..).is_empty());
    drop((all, part));
    assert!(pool.stats().in_use > 0, "released while a view is left");
    assert_eq!(rest.to_vec(), [15, 16, 17, 18, 19]);
    drop(rest);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_slice_beyond_its_view_panics() {
    let part = frozen(&BufferPool::new()).slice(10..20);
    for (start, end) in [(0, 11), (11, 11), (5, 4)] {
        let part = part.clone();
        assert!(std::panic::catch_unwind(move || part.slice(start..end)).is_err());
    }
    let before_the_end = (
        std::ops::Bound::Excluded(usize::MAX),
        std::ops::Bound::Unbounded,
    );
    assert!(std::panic::catch_unwind(move || part.slice(before_the_end)).is_err());
}

#[test]
fn a_shared_buffer_becomes_bytes_without_a_copy() {
    let pool = BufferPool::new();
    let shared = frozen(&pool).slice(100..200);
    let address = shared.as_ptr();
    let bytes = Bytes::from(shared);
    assert_eq!((bytes.as_ptr(), bytes.len(), bytes[0]), (address, 100, 100));
    drop(pool);
    let clone = bytes.clone();
    drop(bytes);
    assert_eq!(clone[99], 199);
    assert_eq!(Bytes::from(BufferPool::new().get(7)).len(), 7);
}

#[test]
fn the_last_view_unwraps_to_the_buffer() {
    let pool = BufferPool::new();
    let (one, other) = (frozen(&pool), frozen(&pool).slice(1..2));
    let clone = one.clone();
    let one = one.try_unwrap().unwrap_err();
    drop(clone);
    let mut buffer = one.try_unwrap().unwrap();
    buffer[0] = 9;
    assert_eq!((buffer.len(), buffer[0], buffer[1]), (1000, 9, 1));
    assert_eq!(other.try_unwrap().unwrap().len(), 1000);
    assert_eq!(&SharedBuffer::from(buffer)[..2], [9, 1]);
}
