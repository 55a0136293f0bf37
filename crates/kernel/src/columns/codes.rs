//! Codes of a column, out of the words that hold them.

use super::Width;

/// 32 codes, one behind the other.
#[inline(always)]
pub(super) fn stream<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    let bytes = words.as_flattened();
    for (bytes, out) in bytes.chunks_exact(B).zip(out.as_chunks_mut::<8>().0) {
        let mut word = [0; 8];
        word[..B].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (j, code) in out.iter_mut().enumerate() {
            *code = (word >> (j * B)) as u8 & ((1u16 << B) - 1) as u8;
        }
    }
}

/// 32 codes in planes.
#[inline(always)]
pub(super) fn planar<const B: usize>(words: &[[u8; 4]; B], out: &mut [u8; 32]) {
    for (i, code) in out.iter_mut().enumerate() {
        *code = planar_code(|w| u32::from_le_bytes(words[w]), B as u32, i);
    }
}

/// The widths of the planes of codes of so many bits, from the lowest on; zeros are none.
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

#[inline(always)]
fn planar_code(word: impl Fn(usize) -> u32, bits: u32, i: usize) -> u8 {
    let (mut code, mut offset) = (0, 0);
    for width in planes(bits) {
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

/// The eight codes of four bits that a word holds, one behind the other or in AWQ's order.
#[inline]
pub fn eight_codes(word: [u8; 4], awq: bool) -> [u8; 8] {
    let word = u64::from(u32::from_le_bytes(word));
    let codes = if awq {
        // four nibbles, one into the lower byte of every two
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

/// Code `i` of those that some words hold, 32 in as many words as a code has bits.
#[inline(always)]
pub fn packed_code(words: &[[u8; 4]], width: Width, i: usize) -> u8 {
    let bits = width.bits() as usize;
    let word = |w: usize| {
        words
            .get(i / 32 * bits + w)
            .map_or(0, |w| u32::from_le_bytes(*w))
    };
    match width {
        Width::Planar(bits) => planar_code(word, bits, i % 32),
        Width::Stream(_) => {
            let at = i % 32 * bits;
            let two = u64::from(word(at / 32)) | u64::from(word(at / 32 + 1)) << 32;
            (two >> (at % 32)) as u8 & ((1u16 << bits) - 1) as u8
        }
    }
}
