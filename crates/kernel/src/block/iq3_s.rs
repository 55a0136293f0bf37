//! IQ3_S: 256 elements in eights, each two entries of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | qs[64] | qh[8] (bit 8 of eight grid indices) | signs[32] | scales[4]`; low nibbles first.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel, tables};

kernel!(iq3_s);

#[inline(always)]
fn iq3_s<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<110>();
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
    block: &[u8; 110],
    out: &mut [O::Cell; 256],
) {
    let nibbles = u32::from_le_bytes(*part(block, 106));
    let mut scales = [0.0; 8];
    for (g, scale) in scales.iter_mut().enumerate() {
        *scale = d * (1 + 2 * (nibbles >> (4 * g) & 15)).cast_signed() as f32;
    }
    let scales = grid::kept(scales);
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (q, h) = (
            u64::from_le_bytes(*part(block, 2 + 8 * g)),
            u64::from(block[66 + g]),
        );
        // bits 8 of the even and of the odd indices, sixteen bits apart
        let even = (h | h << 14 | h << 28 | h << 42) & 0x0001_0001_0001_0001;
        let odd = (h >> 1 | h << 13 | h << 27 | h << 41) & 0x0001_0001_0001_0001;
        let even = q & 0x00ff_00ff_00ff_00ff | even << 8;
        let odd = q >> 8 & 0x00ff_00ff_00ff_00ff | odd << 8;
        let entries = each!(at in [0, 16, 32, 48] => {
            grid::pair(tables::IQ3_S[grid::index(even, at) & 511], tables::IQ3_S[grid::index(odd, at) & 511])
        });
        let signs = u32::from_le_bytes(*part(block, 74 + 4 * g));
        grid::signed::<S, O, PLAIN>(s, [scales[g]; 2], entries, signs, out);
    }
}
