#![allow(unsafe_code)] // stores that pass by the caches; see CONVENTIONS.md

//! Copies to memory that is not read soon.

/// Copies without bringing the destination's lines into the caches first: a plain store reads each line before it is
/// overwritten, which is half of what large outputs cost. Worth it where the destination is much larger than the caches,
/// and nobody reads it at once.
///
/// # Panics
/// The two are not of the same length.
pub fn stream(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "as much room as there is to copy");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    past_caches(from, to);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    to.copy_from_slice(from);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn past_caches(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_sfence, _mm_stream_si128};

    let (head, whole, tail) = bytemuck::pod_align_to_mut::<u8, __m128i>(to);
    let (first, rest) = from.split_at(head.len());
    head.copy_from_slice(first);
    let (sixteens, last) = rest.split_at(whole.len() * 16);
    for (place, bytes) in whole.iter_mut().zip(sixteens.as_chunks::<16>().0) {
        // SAFETY: the place is a reference, hence aligned and ours; SSE2 belongs to every x86-64.
        unsafe { _mm_stream_si128(place, bytemuck::must_cast(*bytes)) };
    }
    // SAFETY: SSE belongs to every x86-64.
    unsafe { _mm_sfence() }; // whoever is told that it is done finds the bytes
    tail.copy_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_wherever_they_begin() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for start in 0..33 {
            for len in [0, 1, 15, 16, 17, 63, 64, 500] {
                let mut to = vec![0xaa; 700];
                stream(&from[start..start + len], &mut to[3 * start..3 * start + len]);
                assert_eq!(to[3 * start..3 * start + len], from[start..start + len]);
                assert!(to[..3 * start].iter().chain(&to[3 * start + len..]).all(|byte| *byte == 0xaa));
            }
        }
    }
}
