//! Q3_K: 16 groups of 16 codes of 3 bits around 4; each has a scale of 6 bits around 32.
//! `hmask[32] | qs[64] | scales[12] | d (f16)`. Each 32 bytes of `qs` hold 128 codes, lowest bits first;
//! bit `i` of `hmask` is the third bit of the `i`th 32 codes.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q3_k);

/// Scales: 16 low nibbles in 8 bytes, then 16 upper pairs of bits in 4.
#[inline(always)]
fn scales(packed: &[u8; 12]) -> [u8; 16] {
    let mut scales = [0; 16];
    for (g, scale) in scales.iter_mut().enumerate() {
        let low = packed[g % 8] >> (g / 8 * 4) & 15;
        let high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
        *scale = low | high << 4;
    }
    scales
}

#[inline(always)]
fn q3_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<110>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 108));
        let scales = scales(part(block, 96));
        for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let dl = d * (i32::from(scales[g]) - 32) as f32;
            let (shift, bit) = (g % 8 / 2 * 2, g / 2);
            let qs = part::<16>(block, 32 + g / 8 * 32 + g % 2 * 16);
            let high = part::<16>(block, g % 2 * 16);
            for ((q, h), out) in qs.iter().zip(high).zip(out) {
                let code = (q >> shift) & 3 | (h >> bit & 1) << 2;
                *out = O::cell(dl * (i32::from(code) - 4) as f32);
            }
        }
    }
}
