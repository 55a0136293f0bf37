//! IQ1_M (`block_iq1_m`): 256 elements in 16 groups of 16, each eight elements an entry of a grid, 56 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `qs[32]` | bits 0 to 7 of the grid indices |
//! | 32 | `qh[16]` | a nibble per index: its bits 8 to 10, and the sign of its shift |
//! | 48 | `scales[8]` | four u16: four scales of 3 bits each; the four top nibbles, lowest first, are the F16 `d` |
//!
//! `x = d * (2 * scale + 1) * (grid[index] ± 1/8)`, minus if the sign bit is set. The grid is IQ1_S's.

use crate::field::field;
use crate::half::from_f16;
use crate::unroll::unroll;
use crate::{OutputElement, Simd, grid, kernel};

kernel!(iq1_m);

#[inline(always)]
fn iq1_m<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<56>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        // `d` is spread over the top nibbles of the four words, that is over every second byte
        let [_, s1, _, s3, _, s5, _, s7] = *field(block, 48);
        let d = from_f16([s1 >> 4 | s3 & 0xf0, s5 >> 4 | s7 & 0xf0]);
        if O::IS_ROUNDED && !d.is_finite() {
            groups::<S, O, false>(simd, d, block, out);
        } else {
            groups::<S, O, true>(simd, d, block, out);
        }
    }
}

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 56],
    out: &mut [O::Stored; 256],
) {
    let words = unroll!(at in [48, 50, 52, 54] => u16::from_le_bytes(*field(block, at)));
    let mut scales = [0.0; 16];
    for (i, scale) in scales.iter_mut().enumerate() {
        // grid entries are in eighths; multiplying by 1/8 is exact
        let code = u32::from(words[i / 4] >> (i % 4 * 3) & 7);
        *scale = d * (2 * code + 1).cast_signed() as f32 * 0.125;
    }
    let scales = grid::opaque(scales);
    let groups = out
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(scales.as_chunks::<2>().0);
    for (g, (out, scales)) in groups.enumerate() {
        let high = usize::from(u16::from_le_bytes(*field(block, 32 + 2 * g)));
        // bits 8 to 10 of the indices are the low three bits of each nibble of `high`, its fourth bit is the sign of the shift
        let [q0, q1, q2, q3] = unroll!(i in [0, 1, 2, 3] => usize::from(block[4 * g + i]));
        let indices = [
            q0 | high << 8 & 0x700,
            q1 | high << 4 & 0x700,
            q2 | high & 0x700,
            q3 | high >> 4 & 0x700,
        ];
        // a mask byte per eight elements: all ones if the shift is positive, which takes -1/8 to +1/8
        let up =
            unroll!(bit in [0x8, 0x80, 0x800, 0x8000] => if high & bit == 0 { 0xff } else { 0 });
        let up = simd.select_or_zero(u32::from_le_bytes(up), simd.splat_u8(2));
        let codes = simd.add_u8(
            simd.load_u64x4(unroll!(i in [0, 1, 2, 3] => grid::IQ1_EIGHTHS[indices[i]])),
            up,
        );
        grid::store_scaled::<S, O, ASSUME_NORMAL>(simd, *scales, codes, out);
    }
}
