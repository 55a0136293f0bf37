//! What the types with grids share: eight elements at a time, from an entry of a codebook.

use super::Element;

/// A block's 256 cells as eight groups of four eights.
#[inline(always)]
pub(crate) fn groups<C>(out: &mut [C; 256]) -> &mut [[[C; 8]; 4]] {
    out.as_chunks_mut::<8>().0.as_chunks_mut::<4>().0
}

/// The scale of the types of two bits, from four bits: `d * (0.5 + scale) * 0.25`.
#[inline(always)]
pub(crate) fn quarter_scale(d: f32, scale: u8) -> f32 {
    d * (0.5 + f32::from(scale)) * 0.25
}

/// An entry of eight elements from two of four.
#[inline(always)]
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// `scale` times each magnitude, negated where its bit in `signs` is set.
#[inline(always)]
pub(crate) fn signed<O: Element>(out: &mut [O::Cell; 8], scale: f32, entry: u64, signs: u8) {
    for (j, (out, magnitude)) in out.iter_mut().zip(entry.to_le_bytes()).enumerate() {
        let sign = ((u32::from(signs) >> j) & 1) << 31;
        *out = O::cell(f32::from_bits((scale * f32::from(magnitude)).to_bits() ^ sign));
    }
}

/// `scale` times each signed code moved by `delta`.
#[inline(always)]
pub(crate) fn moved<O: Element>(out: &mut [O::Cell; 8], scale: f32, entry: u64, delta: f32) {
    for (out, code) in out.iter_mut().zip(entry.to_le_bytes()) {
        *out = O::cell(scale * (f32::from(code.cast_signed()) + delta));
    }
}
