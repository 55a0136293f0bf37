//! Q5_K: 8 groups of 32 codes of 5 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qh[32] | qs[128]`. Each 32 bytes of `qs` hold two groups, low
//! nibbles first; bit `i` of `qh` is the fifth bit of group `i`.

use super::part;
use super::q4_k::scales;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q5_k);

#[inline(always)]
fn q5_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<176>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let (d, min) = (from_f16(*part(block, 0)), from_f16(*part(block, 2)));
        let (scales, minima) = scales(part(block, 4));
        for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let dl = d * f32::from(scales[g]);
            let ml = min * f32::from(minima[g]);
            let shift = g % 2 * 4;
            let high = part::<32>(block, 16);
            for ((q, h), out) in part::<32>(block, 48 + g / 2 * 32).iter().zip(high).zip(out) {
                let code = (q >> shift) & 15 | (h >> g & 1) << 4;
                *out = O::cell(dl * f32::from(code) - ml);
            }
        }
    }
}
