//! Q5_K: 8 groups of 32 codes of 5 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qh[32] | qs[128]`. Each 32 bytes of `qs` hold two groups, low
//! nibbles first; bit `i` of `qh` is the fifth bit of group `i`.

use super::part;
use super::q4_k::scales;
use crate::{Element, Lanes, batch, kernel};

kernel!(q5_k);

#[inline(always)]
fn q5_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<176>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let scales = scales(s, part(block, 0));
        let finite = batch::finite(scales.as_flattened());
        let (scales, minima) = (batch::in_memory(&scales[0]), batch::in_memory(&scales[1]));
        if O::PARTICULAR && !finite {
            groups::<S, O, false>(s, block, scales, minima, out);
        } else {
            groups::<S, O, true>(s, block, scales, minima, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    block: &[u8; 176],
    scales: &[f32],
    minima: &[f32],
    out: &mut [O::Cell; 256],
) {
    let mut high = s.bytes(part(block, 16));
    let numbers = scales.as_chunks::<2>().0.iter().zip(minima.as_chunks::<2>().0);
    for ((i, out), (scales, minima)) in out.as_chunks_mut::<64>().0.iter_mut().enumerate().zip(numbers) {
        let low = s.bytes(part(block, 48 + 32 * i));
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = s.and(if j == 0 { low } else { s.shr_u16(low, 4) }, s.splat_byte(15));
            let codes = s.or(low, s.shl_u16(s.and(high, s.splat_byte(1)), 4));
            high = s.shr_u16(high, 1);
            let (scale, minimum) = (s.splat(scales[j]), s.splat(minima[j]));
            let [first, second] = s.unsigned(codes);
            let values = [s.sub(s.mul(scale, first), minimum), s.sub(s.mul(scale, second), minimum)];
            O::put::<S, PLAIN>(s, values, out);
        }
    }
}
