//! Codes of less than a byte, unpacked into bytes.

use super::Lanes;
use super::rows::CHUNK;

/// How the codes of a row are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One code per byte.
    Bytes,
    /// Two codes per byte, low nibble first.
    LowNibbles,
    /// Two codes per byte, high nibble first.
    HighNibbles,
    /// Codes of so many bits (1 to 8), one behind the other from the lowest bit on.
    Stream(u32),
    /// Words of 32 bits with as many whole codes of so many bits as fit, from the lowest bit on.
    Words(u32),
    /// One code in each byte or word of so many bytes, from this bit on: `(word, shift, bits)`.
    Plane(usize, u32, u32),
}

impl Packing {
    /// Bytes of a row of so many codes; `None` if they do not fit in 64 bits.
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

/// The codes from number `start` (a multiple of [`CHUNK`]) on, at most a chunk of them. `row` has them all.
#[inline(always)]
pub(super) fn unpack<'r, S: Lanes>(
    s: S,
    packing: Packing,
    row: &'r [u8],
    start: usize,
    count: usize,
    room: &'r mut [u8; CHUNK],
) -> &'r [u8] {
    match packing {
        Packing::Bytes => return &row[start..start + count],
        Packing::LowNibbles => nibbles(s, &row[start / 2..], 0, count, room),
        Packing::HighNibbles => nibbles(s, &row[start / 2..], 4, count, room),
        Packing::Stream(4) => nibbles(s, &row[start / 2..], 0, count, room),
        Packing::Stream(8) => return &row[start..start + count],
        Packing::Stream(bits) => stream(&row[start / 8 * bits as usize..], bits, count, room),
        Packing::Words(bits) => words(row, bits, start, &mut room[..count]),
        Packing::Plane(word, shift, bits) => {
            plane(&row[start * word..], word, shift, bits, &mut room[..count])
        }
    }
    &room[..count]
}

/// The code number `i`, of `bits` bits, of a column of words.
pub fn code(packing: Packing, bits: u32, bytes: &[u8], i: usize) -> u8 {
    let at = match packing {
        Packing::Words(_) => {
            i / (32 / bits) as usize * 32 + i % (32 / bits) as usize * bits as usize
        }
        _ => i * bits as usize,
    };
    let mut word = [0; 2];
    word.iter_mut()
        .zip(&bytes[at / 8..])
        .for_each(|(w, b)| *w = *b);
    (u16::from_le_bytes(word) >> (at % 8)) as u8 & ((1u16 << bits) - 1) as u8
}

/// Both nibbles of each byte: the one at bit `first`, then the other.
#[inline(always)]
fn nibbles<S: Lanes>(s: S, bytes: &[u8], first: u32, count: usize, room: &mut [u8; CHUNK]) {
    let bytes = &bytes[..count.div_ceil(2)];
    let (whole, rest) = bytes.as_chunks::<32>();
    let (low, high) = (s.splat_byte(0x0f), s.splat_byte(0xf0));
    for (bytes, out) in whole.iter().zip(room.as_chunks_mut::<64>().0) {
        let mut bytes = s.bytes(bytes);
        if first == 4 {
            bytes = s.or(
                s.and(s.shr_u16(bytes, 4), low),
                s.and(s.shl_u16(bytes, 4), high),
            );
        }
        let halves = out.as_chunks_mut::<32>().0;
        let pairs = s.nibble_pairs(bytes);
        halves[0] = s.byte_array(pairs[0]);
        halves[1] = s.byte_array(pairs[1]);
    }
    for (byte, pair) in rest
        .iter()
        .zip(room[whole.len() * 64..].as_chunks_mut::<2>().0)
    {
        *pair = [byte >> first & 15, byte >> (4 - first) & 15];
    }
}

/// Eight codes of `bits` bits lie in `bits` bytes.
#[inline(always)]
fn stream(bytes: &[u8], bits: u32, count: usize, room: &mut [u8; CHUNK]) {
    let (n, mask) = (bits as usize, (1u64 << bits) - 1);
    for (bytes, eight) in bytes[..(count * n).div_ceil(8)]
        .chunks(n)
        .zip(room.as_chunks_mut::<8>().0)
    {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (j, code) in (0u32..).zip(eight) {
            *code = (word >> (j * bits) & mask) as u8;
        }
    }
}

#[inline(always)]
fn words(row: &[u8], bits: u32, start: usize, room: &mut [u8]) {
    let (per_word, mask) = ((32 / bits) as usize, (1u64 << bits) - 1);
    let words = row.as_chunks::<4>().0;
    for (i, code) in (start..).zip(room) {
        let word = u64::from(u32::from_le_bytes(words[i / per_word]));
        *code = (word >> ((i % per_word) as u32 * bits) & mask) as u8;
    }
}

#[inline(always)]
fn plane(bytes: &[u8], word: usize, shift: u32, bits: u32, room: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    if word == 1 {
        for (byte, code) in bytes.iter().zip(room) {
            *code = byte >> shift & mask as u8;
        }
        return;
    }
    for (bytes, code) in bytes.chunks_exact(word).zip(room) {
        let mut wide = [0; 8];
        wide[..word].copy_from_slice(bytes);
        *code = (u64::from_le_bytes(wide) >> shift & mask) as u8;
    }
}
