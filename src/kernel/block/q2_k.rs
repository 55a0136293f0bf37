//! Q2_K: 16 groups of 16 codes of 2 bits; each has a scale and a minimum of 4 bits.
//! `scales[16] | qs[64] | d (f16) | dmin (f16)`. Each 32 bytes of `qs` hold 128 codes, lowest bits first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q2_k);

#[inline(always)]
fn q2_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<84>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let (d, min) = (from_f16(*part(block, 80)), from_f16(*part(block, 82)));
        for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = block[g];
            let dl = d * f32::from(scale & 15);
            let ml = min * f32::from(scale >> 4);
            let shift = g % 8 / 2 * 2;
            let qs = part::<16>(block, 16 + g / 8 * 32 + g % 2 * 16);
            for (q, out) in qs.iter().zip(out) {
                *out = O::cell(dl * f32::from((q >> shift) & 3) - ml);
            }
        }
    }
}
