#![allow(unsafe_code)] // non-temporal stores have no safe API; see CONVENTIONS.md

//! Copies with non-temporal stores, which write to memory without first loading the destination's cache lines.

/// Copies `from` to `to` with non-temporal stores.
///
/// A plain store reads each cache line of the destination before it overwrites it; for outputs much larger than the caches
/// that is half of the memory traffic. Non-temporal stores skip the read: 200 MB take half the time (experiment 33). They
/// evict the destination from the caches, so they pay only if it is not read again soon. They lose on new memory, whose
/// pages the operating system has just zeroed in the caches (experiment 42). On other targets than x86-64 this is a plain
/// copy.
///
/// The bytes are visible to other threads as after plain stores: a fence at the end orders the non-temporal stores, which
/// are weakly ordered, before whatever the caller stores next.
///
/// # Panics
/// The slices differ in length.
pub fn copy_non_temporal(from: &[u8], to: &mut [u8]) {
    let _fence = FenceOnDrop;
    copy_unfenced(from, to);
}

/// Fills `out` piece by piece: `make(offset, piece)` writes each piece to a part of `buffer`, from which it is copied with
/// non-temporal stores to `out[offset..]`. Pieces have the length of `buffer`, except that the last one may be shorter.
///
/// With a buffer that fits the first-level cache, the stores of one piece proceed while the next is computed. One fence at
/// the end serves all pieces: a fence per 4 KiB was slower than larger pieces (experiment 42).
///
/// # Errors
/// The error of `make`; `out` keeps its former bytes from that piece on.
///
/// # Panics
/// `buffer` is empty and `out` is not.
pub fn fill_non_temporal<E>(
    buffer: &mut [u8],
    out: &mut [u8],
    mut make: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let _fence = FenceOnDrop;
    let size = buffer.len();
    for (i, out) in out.chunks_mut(size).enumerate() {
        let piece = &mut buffer[..out.len()];
        make(i * size, piece)?;
        copy_unfenced(piece, out);
    }
    Ok(())
}

/// Orders the non-temporal stores before later stores when dropped, also on an early return or a panic of `make`. Without
/// it a thread that observes the completion through a plain store could still read old bytes.
struct FenceOnDrop;

impl Drop for FenceOnDrop {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: `sfence` needs SSE, which every x86-64 processor has.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies with non-temporal stores of 16 bytes, without a fence. Wider stores are no faster (experiment 42), and these need
/// no more than SSE2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn copy_unfenced(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_stream_si128};

    assert_eq!(
        from.len(),
        to.len(),
        "source and destination lengths differ"
    );
    // the store needs an aligned destination; the ends are copied plainly
    let (head, aligned, tail) = bytemuck::pod_align_to_mut::<u8, __m128i>(to);
    let (first, rest) = from.split_at(head.len());
    head.copy_from_slice(first);
    let (middle, last) = rest.split_at(aligned.len() * 16);
    for (to, bytes) in aligned.iter_mut().zip(middle.as_chunks::<16>().0) {
        // SAFETY: `to` is an exclusive reference to an `__m128i`, hence valid and aligned; every x86-64 processor has SSE2.
        unsafe { _mm_stream_si128(to, bytemuck::must_cast(*bytes)) };
    }
    tail.copy_from_slice(last);
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn copy_unfenced(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_non_temporal_calls_back_once_per_piece_in_order() {
        for (size, len) in [
            (1, 70),
            (48, 24_000),
            (4096, 12_288),
            (5000, 12_345),
            (7, 0),
        ] {
            let (mut out, mut expected_offset) = (vec![0; len], 0);
            let result = fill_non_temporal(&mut vec![0; size], &mut out, |at, piece| {
                assert_eq!(at, expected_offset);
                expected_offset += piece.len();
                piece
                    .iter_mut()
                    .zip(at..)
                    .for_each(|(byte, at)| *byte = at as u8);
                if at < 10_000 { Ok(()) } else { Err(at) }
            });
            assert_eq!(
                result.err(),
                (len > 10_000)
                    .then_some(10_000usize.next_multiple_of(size))
                    .filter(|at| *at < len)
            );
            let done = result.err().unwrap_or(len);
            assert!(
                out[..done]
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == at as u8)
            );
            assert!(out[done..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn copy_non_temporal_writes_exactly_the_destination() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for start in 0..33 {
            for len in [0, 1, 15, 16, 17, 63, 64, 500] {
                let mut to = vec![0xaa; 700];
                copy_non_temporal(
                    &from[start..start + len],
                    &mut to[3 * start..3 * start + len],
                );
                assert_eq!(to[3 * start..3 * start + len], from[start..start + len]);
                assert!(
                    to[..3 * start]
                        .iter()
                        .chain(&to[3 * start + len..])
                        .all(|byte| *byte == 0xaa)
                );
            }
        }
    }
}
