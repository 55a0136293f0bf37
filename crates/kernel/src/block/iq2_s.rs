//! IQ2_S: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 16.
//! `d (f16) | qs[32] | signs[32] | qh[8] (bits 8 and 9 of four grid indices) | scales[8]`; low nibbles first.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel, tables};

kernel!(iq2_s);

#[inline(always)]
fn iq2_s<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<82>();
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
    block: &[u8; 82],
    out: &mut [O::Cell; 256],
) {
    let [low, high] = grid::quarter_scales(s, d, part(block, 74));
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let [q0, q1, q2, q3] = each!(i in [0, 1, 2, 3] => usize::from(block[2 + 4 * g + i]));
        let signs = u32::from_le_bytes(*part(block, 34 + 4 * g));
        let qh = usize::from(block[66 + g]);
        let indices = [
            q0 | qh << 8 & 0x300,
            q1 | qh << 6 & 0x300,
            q2 | qh << 4 & 0x300,
            q3 | qh << 2 & 0x300,
        ];
        let entries = each!(i in [0, 1, 2, 3] => tables::IQ2_S[indices[i]]);
        grid::signed::<S, O, PLAIN>(s, [low[g], high[g]], entries, signs, out);
    }
}
