//! What the types with grids share: thirty-two elements at a time, from four entries of eight.

use super::{Element, Lanes, tables};

/// The scales of the types of two bits, from four bits each: `d * (0.5 + scale) * 0.25`; for each byte that of its
/// low nibble, then for each that of its high one.
#[inline(always)]
pub(crate) fn quarter_scales<S: Lanes>(s: S, d: f32, scales: &[u8; 8]) -> [[f32; 16]; 2] {
    let mut padded = [0; 16];
    padded[..8].copy_from_slice(scales);
    let [low, high] = s.unsigned(s.nibbles(&padded));
    kept([s.array(quarter(s, d, low)), s.array(quarter(s, d, high))])
}

#[inline(always)]
fn quarter<S: Lanes>(s: S, d: f32, scales: S::Floats) -> S::Floats {
    s.mul(
        s.mul(s.splat(d), s.add(s.splat(0.5), scales)),
        s.splat(0.25),
    )
}

/// A group's signs from its word of four times seven bits: the eighth makes their number even.
#[inline(always)]
pub(crate) fn even_signs(word: u32) -> u32 {
    let sevens = word & 0x7f | word << 1 & 0x7f00 | word << 2 & 0x7f_0000 | word << 3 & 0x7f00_0000;
    let fours = sevens ^ sevens >> 4 & 0x0f0f_0f0f;
    let twos = fours ^ fours >> 2 & 0x0303_0303;
    sevens | ((twos ^ twos >> 1) & 0x0101_0101) << 7
}

/// The word's lower half.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half is not asked for"
)]
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

/// What stands at a bit of a word, and at those above it.
#[inline(always)]
pub(crate) fn index(word: u64, at: u32) -> usize {
    usize::from(u16::from_le_bytes(
        *(word >> at)
            .to_le_bytes()
            .first_chunk()
            .expect("eight bytes"),
    ))
}

/// An entry of eight elements from two of four; kept, since the compiler else gathers, which is slower.
#[inline(always)]
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    kept(u64::from(low) | u64::from(high) << 32)
}

/// What is computed once, by vectors if they suit it, and then read number by number.
#[inline(always)]
pub(crate) fn kept<T>(numbers: T) -> T {
    std::hint::black_box(numbers)
}

/// Magnitudes times the scale of each sixteen, negated where their bit in `signs` is set.
#[inline(always)]
pub(crate) fn signed<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    scales: [f32; 2],
    entries: [u64; 4],
    signs: u32,
    out: &mut [O::Cell; 32],
) {
    scaled::<S, O, PLAIN>(s, scales, s.negate(signs, s.quads(entries)), out);
}

/// Signed bytes times the scale of each sixteen.
#[inline(always)]
pub(crate) fn scaled<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    scales: [f32; 2],
    codes: S::Bytes,
    out: &mut [O::Cell; 32],
) {
    let [low, high] = s.signed(codes);
    O::put::<S, PLAIN>(
        s,
        [
            s.mul(s.splat(scales[0]), low),
            s.mul(s.splat(scales[1]), high),
        ],
        out,
    );
}

/// The grid of the types of one bit in eighths, moved down by one: 8 × code - 1. Adding 2 moves it up by one.
pub(crate) static IQ1_DOWN: [u64; 2048] = {
    let mut eighths = tables::IQ1;
    let mut i = 0;
    while i < eighths.len() {
        let mut bytes = eighths[i].to_le_bytes();
        let mut j = 0;
        while j < 8 {
            bytes[j] = (bytes[j] << 3).wrapping_sub(1);
            j += 1;
        }
        eighths[i] = u64::from_le_bytes(bytes);
        i += 1;
    }
    eighths
};
