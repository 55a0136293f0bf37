//! Unpacking codes of 1 to 8 bits into one byte each.

use super::{Simd, Stage};

/// Codes unpacked at a time: whole bytes for every width, and a buffer that stays in the first-level cache.
pub(crate) const CHUNK: usize = 256;

/// How the codes of a row are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePacking {
    /// One code per byte.
    Bytes,
    /// Two codes per byte, low nibble first.
    LowNibbles,
    /// Two codes per byte, high nibble first.
    HighNibbles,
    /// A stream of codes of this many bits (1 to 8), from the lowest bit on, without gaps.
    Stream(u32),
    /// Words of 32 bits, each with as many whole codes of this many bits as fit, from the lowest bit on; upper bits are
    /// unused.
    Words(u32),
    /// One code per little-endian word: `(word, shift, bits)` is a word of `word` bytes (1 to 8) with a code of `bits` bits
    /// from bit `shift` on.
    Plane(usize, u32, u32),
}

impl CodePacking {
    /// Bytes of a row of `cols` codes; `None` if the number exceeds 64 bits.
    pub fn row_bytes(self, cols: u64) -> Option<u64> {
        Some(match self {
            Self::Bytes => cols,
            Self::LowNibbles | Self::HighNibbles => cols.div_ceil(2),
            Self::Stream(bits) => cols.checked_mul(bits.into())?.div_ceil(8),
            Self::Words(bits) => cols.div_ceil((32 / bits).into()).checked_mul(4)?,
            Self::Plane(word, ..) => cols.checked_mul(word as u64)?,
        })
    }
}

/// Unpacks `count` codes, at most [`CHUNK`], from index `start` on, a multiple of `CHUNK`. `row` holds the whole row. Codes
/// that are bytes already are borrowed from it, others are written to `unpacked`.
#[inline(always)]
pub(super) fn unpack<'r, S: Simd>(
    simd: S,
    packing: CodePacking,
    row: &'r [u8],
    start: usize,
    count: usize,
    unpacked: &'r mut [u8; CHUNK],
) -> &'r [u8] {
    match packing {
        CodePacking::Bytes | CodePacking::Stream(8) => return &row[start..start + count],
        CodePacking::LowNibbles | CodePacking::Stream(4) => {
            nibbles(simd, &row[start / 2..], 0, count, unpacked);
        }
        CodePacking::HighNibbles => nibbles(simd, &row[start / 2..], 4, count, unpacked),
        CodePacking::Stream(_) | CodePacking::Words(_) | CodePacking::Plane(..) => {
            let unpacked = &mut unpacked[..count];
            simd.outline(OddWidth {
                packing,
                row,
                start,
                unpacked,
            });
            return unpacked;
        }
    }
    &unpacked[..count]
}

/// Unpacks codes that are neither bytes nor pairs of nibbles, from index `start` on.
struct OddWidth<'r> {
    packing: CodePacking,
    row: &'r [u8],
    start: usize,
    unpacked: &'r mut [u8],
}

impl Stage for OddWidth<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            packing,
            row,
            start,
            unpacked,
        } = self;
        match packing {
            // `start` is a multiple of `CHUNK`, hence of 8, and eight codes fill whole bytes
            CodePacking::Stream(bits) => stream(&row[start / 8 * bits as usize..], bits, unpacked),
            CodePacking::Words(bits) => words(row, bits, start, unpacked),
            CodePacking::Plane(word, shift, bits) => {
                plane(&row[start * word..], word, shift, bits, unpacked);
            }
            CodePacking::Bytes | CodePacking::LowNibbles | CodePacking::HighNibbles => {
                unreachable!("unpacked by the caller")
            }
        }
    }
}

/// Code `i`, of `bits` bits (1 to 8), of a row packed as [`CodePacking::Words`] or, if `packing` is another, as a stream.
///
/// # Panics
/// The code lies beyond the end of `bytes`.
pub fn row_code(packing: CodePacking, bits: u32, bytes: &[u8], i: usize) -> u8 {
    let at = match packing {
        CodePacking::Words(_) => {
            i / (32 / bits) as usize * 32 + i % (32 / bits) as usize * bits as usize
        }
        _ => i * bits as usize,
    };
    let mut word = [0; 2];
    word.iter_mut()
        .zip(&bytes[at / 8..])
        .for_each(|(w, b)| *w = *b);
    // two bytes hold any code of up to 8 bits, wherever in the first one it begins; the mask is made in 16 bits, as `1
    // << 8` does not fit into 8
    (u16::from_le_bytes(word) >> (at % 8)) as u8 & ((1u16 << bits) - 1) as u8
}

/// Unpacks both nibbles of each byte, first the one at bit `first` (0 or 4), then the other.
#[inline(always)]
fn nibbles<S: Simd>(simd: S, bytes: &[u8], first: u32, count: usize, unpacked: &mut [u8; CHUNK]) {
    let bytes = &bytes[..count.div_ceil(2)];
    let (whole, rest) = bytes.as_chunks::<32>();
    let (low, high) = (simd.splat_u8(0x0f), simd.splat_u8(0xf0));
    for (bytes, out) in whole.iter().zip(unpacked.as_chunks_mut::<64>().0) {
        let mut bytes = simd.load_u8(bytes);
        if first == 4 {
            // swap the nibbles
            // so that one way of unpacking serves both orders: two codes are swapped at once
            bytes = simd.or(
                simd.and(simd.shr_u16(bytes, 4), low),
                simd.and(simd.shl_u16(bytes, 4), high),
            );
        }
        let halves = out.as_chunks_mut::<32>().0;
        let pairs = simd.unpack_nibbles_interleaved(bytes);
        halves[0] = simd.to_u8_array(pairs[0]);
        halves[1] = simd.to_u8_array(pairs[1]);
    }
    for (byte, pair) in rest
        .iter()
        .zip(unpacked[whole.len() * 64..].as_chunks_mut::<2>().0)
    {
        *pair = [byte >> first & 15, byte >> (4 - first) & 15];
    }
}

/// Unpacks a stream: eight codes of `bits` bits lie in `bits` bytes, which one 64-bit word holds.
#[inline(always)]
fn stream(bytes: &[u8], bits: u32, unpacked: &mut [u8]) {
    let (n, mask) = (bits as usize, (1u64 << bits) - 1);
    for (bytes, eight) in bytes[..(unpacked.len() * n).div_ceil(8)]
        .chunks(n)
        .zip(unpacked.chunks_mut(8))
    {
        // the last bytes of a row may be fewer than `bits`
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (j, code) in (0u32..).zip(eight) {
            *code = (word >> (j * bits) & mask) as u8;
        }
    }
}

/// Unpacks words of 32 bits that hold whole codes.
#[inline(always)]
fn words(row: &[u8], bits: u32, start: usize, unpacked: &mut [u8]) {
    let (per_word, mask) = ((32 / bits) as usize, (1u64 << bits) - 1);
    let words = row.as_chunks::<4>().0;
    for (i, code) in (start..).zip(unpacked) {
        let word = u64::from(u32::from_le_bytes(words[i / per_word]));
        *code = (word >> ((i % per_word) as u32 * bits) & mask) as u8;
    }
}

/// Unpacks one code per word of `word` bytes.
#[inline(always)]
fn plane(bytes: &[u8], word: usize, shift: u32, bits: u32, unpacked: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    if word == 1 {
        for (byte, code) in bytes.iter().zip(unpacked) {
            *code = byte >> shift & mask as u8;
        }
        return;
    }
    for (bytes, code) in bytes.chunks_exact(word).zip(unpacked) {
        let mut wide = [0; 8];
        wide[..word].copy_from_slice(bytes);
        *code = (u64::from_le_bytes(wide) >> shift & mask) as u8;
    }
}
