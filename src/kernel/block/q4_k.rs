//! Q4_K: 8 groups of 32 codes of 4 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qs[128]`. Each 32 bytes of `qs` hold two groups, low nibbles first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q4_k);

/// Scales and minima of Q4_K and Q5_K: 6 bits of the first four each, of which two belong to the last four.
#[inline(always)]
pub(super) fn scales(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let (s, m, low) = (packed[j], packed[j + 4], packed[j + 8]);
        (scales[j], minima[j]) = (s & 63, m & 63);
        (scales[j + 4], minima[j + 4]) = (low & 15 | s >> 6 << 4, low >> 4 | m >> 6 << 4);
    }
    (scales, minima)
}

#[inline(always)]
fn q4_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<144>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let (d, min) = (from_f16(*part(block, 0)), from_f16(*part(block, 2)));
        let (scales, minima) = scales(part(block, 4));
        for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let dl = d * f32::from(scales[g]);
            let ml = min * f32::from(minima[g]);
            let shift = g % 2 * 4;
            for (q, out) in part::<32>(block, 16 + g / 2 * 32).iter().zip(out) {
                *out = O::cell(dl * f32::from((q >> shift) & 15) - ml);
            }
        }
    }
}
