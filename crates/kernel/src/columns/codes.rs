//! Unpacking the codes of a column from the words that hold them.

use super::CodeWidth;

/// Unpacks 32 codes of `B` bits, packed as a stream: eight codes fill `B` bytes.
#[inline(always)]
pub(super) fn stream<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    let bytes = words.as_flattened();
    for (bytes, out) in bytes.chunks_exact(B).zip(out.as_chunks_mut::<8>().0) {
        let mut word = [0; 8];
        word[..B].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (j, code) in out.iter_mut().enumerate() {
            // the mask is made in 16 bits, as `1 << 8` does not fit into 8
            *code = (word >> (j * B)) as u8 & ((1u16 << B) - 1) as u8;
        }
    }
}

/// Unpacks 32 codes of `B` bits, packed in planes.
#[inline(always)]
pub(super) fn planar<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    for (i, code) in out.iter_mut().enumerate() {
        *code = planar_code(|w| u32::from_le_bytes(words[w]), B as u32, i);
    }
}

/// The widths of the planes of codes of `bits` bits, from the lowest bits on, padded with zeros.
const fn planes(bits: u32) -> [u32; 3] {
    match bits {
        1 => [1, 0, 0],
        2 => [2, 0, 0],
        3 => [2, 1, 0],
        4 => [4, 0, 0],
        5 => [4, 1, 0],
        6 => [4, 2, 0],
        7 => [4, 2, 1],
        _ => [8, 0, 0],
    }
}

/// Code `i` of 32 in planes: a plane of width `w` takes `w` words, and a word of it has `32 / w` codes.
#[inline(always)]
fn planar_code(word: impl Fn(usize) -> u32, bits: u32, i: usize) -> u8 {
    let (mut code, mut offset) = (0, 0);
    for width in planes(bits) {
        // a width of zero is padding, which makes all lists of planes equally long
        if let Some(per_word) = 32u32.checked_div(width) {
            let per_word = per_word as usize;
            let part = word(offset as usize + i / per_word) >> ((i % per_word) as u32 * width)
                & ((1 << width) - 1);
            code |= part << offset;
            offset += width;
        }
    }
    code as u8
}

/// Unpacks the eight 4-bit codes of a word, in order or, if `awq`, in AWQ's order ([`AWQ_ORDER`](super::AWQ_ORDER)).
///
/// The word is spread to one nibble per byte by halving: each step moves the upper half of every part away from the lower
/// one. Three steps instead of eight shifts; zero points are unpacked this way (experiment 36).
#[inline]
pub fn unpack_8_nibbles(word: [u8; 4], awq: bool) -> [u8; 8] {
    let word = u64::from(u32::from_le_bytes(word));
    let codes = if awq {
        // four nibbles to the lower byte of each 16 bits: AWQ's even codes are the low half of the word, its odd ones the high half
        let spread = |half: u64| {
            let pairs = (half | half << 24) & 0xff_0000_00ff;
            (pairs | pairs << 12) & 0x000f_000f_000f_000f
        };
        spread(word & 0xffff) | spread(word >> 16) << 8
    } else {
        let fours = (word | word << 16) & 0xffff_0000_ffff;
        let pairs = (fours | fours << 8) & 0x00ff_00ff_00ff_00ff;
        (pairs | pairs << 4) & 0x0f0f_0f0f_0f0f_0f0f
    };
    codes.to_le_bytes()
}

/// Code `i` of a packed run of words, 32 codes in as many words as a code has bits. Missing words count as zero.
#[inline(always)]
pub fn column_code(words: &[[u8; 4]], width: CodeWidth, i: usize) -> u8 {
    let bits = width.bits() as usize;
    let word = |w: usize| {
        words
            .get(i / 32 * bits + w)
            .map_or(0, |w| u32::from_le_bytes(*w))
    };
    match width {
        CodeWidth::Planar(bits) => planar_code(word, bits, i % 32),
        CodeWidth::Stream(_) => {
            let at = i % 32 * bits;
            // a code may begin in one word and end in the next
            let two = u64::from(word(at / 32)) | u64::from(word(at / 32 + 1)) << 32;
            (two >> (at % 32)) as u8 & ((1u16 << bits) - 1) as u8
        }
    }
}
