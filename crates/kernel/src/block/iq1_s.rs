//! IQ1_S: 256 elements in eights, each an entry of a grid; a scale of 3 bits and a shift of ±1/8 per 32.
//! `d (f16) | qs[32] | qh[8] (u16: 4 × bits 8 to 10 of a grid index, 3 bits of scale, sign of the shift)`.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel};

kernel!(iq1_s);

#[inline(always)]
fn iq1_s<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<50>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
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
    block: &[u8; 50],
    out: &mut [O::Cell; 256],
) {
    let (high, _) = part::<16>(block, 34).as_chunks();
    let mut scales = [0.0; 8];
    for (scale, high) in scales.iter_mut().zip(high) {
        // of eighths: dividing by 8 is exact
        let code = u32::from(u16::from_le_bytes(*high) >> 12 & 7);
        *scale = d * (2 * code + 1).cast_signed() as f32 * 0.125;
    }
    let scales = grid::kept(scales);
    for (g, (high, out)) in high.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
        let high = usize::from(u16::from_le_bytes(*high));
        let [q0, q1, q2, q3] = each!(i in [0, 1, 2, 3] => usize::from(block[2 + 4 * g + i]));
        let indices = [
            q0 | high << 8 & 0x700,
            q1 | high << 5 & 0x700,
            q2 | high << 2 & 0x700,
            q3 | high >> 1 & 0x700,
        ];
        let up = s.splat_byte(if high & 0x8000 == 0 { 2 } else { 0 });
        let codes = s.add_bytes(
            s.quads(each!(i in [0, 1, 2, 3] => grid::IQ1_DOWN[indices[i]])),
            up,
        );
        grid::scaled::<S, O, PLAIN>(s, [scales[g]; 2], codes, out);
    }
}
