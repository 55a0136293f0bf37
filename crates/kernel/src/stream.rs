#![allow(unsafe_code)] // stores that pass by the caches; see CONVENTIONS.md

//! Copies to memory that is not read soon.

/// Copies without bringing the destination's lines into the caches first: a plain store reads each line before it is
/// overwritten, which is half of what large outputs cost. Worth it where the destination is much larger than the caches,
/// and nobody reads it at once.
///
/// # Panics
/// The two are not of the same length.
pub fn stream(from: &[u8], to: &mut [u8]) {
    let _seen = Seen;
    copy(from, to);
}

/// Has `make` make `out` piece by piece, each in `room`, and copies it from there as [`stream`] does. `make` hears how many
/// bytes are in front of a piece. With a small room the stores of one piece go on while the next is made.
///
/// # Errors
/// As `make`; the rest of `out` is then as it was.
///
/// # Panics
/// There is no room, and something to make.
pub fn stream_made<E>(
    room: &mut [u8],
    out: &mut [u8],
    mut make: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let _seen = Seen;
    let size = room.len();
    for (i, out) in out.chunks_mut(size).enumerate() {
        let made = &mut room[..out.len()];
        make(i * size, made)?;
        copy(made, out);
    }
    Ok(())
}

/// When it is dropped, whoever is told that it is done finds the bytes.
struct Seen;

impl Drop for Seen {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: SSE belongs to every x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies, visibly for this thread only.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn copy(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_stream_si128};

    assert_eq!(from.len(), to.len(), "as much room as there is to copy");
    let (head, whole, tail) = bytemuck::pod_align_to_mut::<u8, __m128i>(to);
    let (first, rest) = from.split_at(head.len());
    head.copy_from_slice(first);
    let (sixteens, last) = rest.split_at(whole.len() * 16);
    for (place, bytes) in whole.iter_mut().zip(sixteens.as_chunks::<16>().0) {
        // SAFETY: the place is a reference, hence aligned and ours; SSE2 belongs to every x86-64.
        unsafe { _mm_stream_si128(place, bytemuck::must_cast(*bytes)) };
    }
    tail.copy_from_slice(last);
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_made_once_and_in_its_place() {
        for (size, len) in [
            (1, 70),
            (48, 24_000),
            (4096, 12_288),
            (5000, 12_345),
            (7, 0),
        ] {
            let (mut out, mut seen) = (vec![0; len], 0);
            let made = stream_made(&mut vec![0; size], &mut out, |at, made| {
                assert_eq!(at, seen);
                seen += made.len();
                made.iter_mut()
                    .zip(at..)
                    .for_each(|(byte, at)| *byte = at as u8);
                if at < 10_000 { Ok(()) } else { Err(at) }
            });
            assert_eq!(
                made.err(),
                (len > 10_000)
                    .then_some(10_000usize.next_multiple_of(size))
                    .filter(|at| *at < len)
            );
            let done = made.err().unwrap_or(len);
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
    fn all_bytes_arrive_wherever_they_begin() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for start in 0..33 {
            for len in [0, 1, 15, 16, 17, 63, 64, 500] {
                let mut to = vec![0xaa; 700];
                stream(
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
