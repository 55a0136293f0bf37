//! IQ1_M: 256 elements in eights, each an entry of a grid and a shift of ±1/8; a scale of 3 bits per 16.
//! `qs[32] | qh[16] (2 × bits 8 to 10 of a grid index and the sign of its shift) | scales[4] (u16: 4 × 3
//! bits)`; the top nibbles of the scales, lowest first, are `d` (f16).

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel};

kernel!(iq1_m);

#[inline(always)]
fn iq1_m<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<56>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let [_, s1, _, s3, _, s5, _, s7] = *part(block, 48);
        let d = from_f16([s1 >> 4 | s3 & 0xf0, s5 >> 4 | s7 & 0xf0]);
        if O::PARTICULAR && !d.is_finite() {
            groups::<S, O, false>(s, d, block, out);
        } else {
            groups::<S, O, true>(s, d, block, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    d: f32,
    block: &[u8; 56],
    out: &mut [O::Cell; 256],
) {
    let words = each!(at in [48, 50, 52, 54] => u16::from_le_bytes(*part(block, at)));
    let mut scales = [0.0; 16];
    for (i, scale) in scales.iter_mut().enumerate() {
        // of eighths: dividing by 8 is exact
        let code = u32::from(words[i / 4] >> (i % 4 * 3) & 7);
        *scale = d * (2 * code + 1).cast_signed() as f32 * 0.125;
    }
    let scales = grid::kept(scales);
    let groups = out
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(scales.as_chunks::<2>().0);
    for (g, (out, scales)) in groups.enumerate() {
        let high = usize::from(u16::from_le_bytes(*part(block, 32 + 2 * g)));
        let [q0, q1, q2, q3] = each!(i in [0, 1, 2, 3] => usize::from(block[4 * g + i]));
        let indices = [
            q0 | high << 8 & 0x700,
            q1 | high << 4 & 0x700,
            q2 | high & 0x700,
            q3 | high >> 4 & 0x700,
        ];
        // a byte of bits for each eight that moves up
        let up = each!(bit in [0x8, 0x80, 0x800, 0x8000] => if high & bit == 0 { 0xff } else { 0 });
        let up = s.keep(u32::from_le_bytes(up), s.splat_byte(2));
        let codes = s.add_bytes(
            s.quads(each!(i in [0, 1, 2, 3] => grid::IQ1_DOWN[indices[i]])),
            up,
        );
        grid::scaled::<S, O, PLAIN>(s, *scales, codes, out);
    }
}
