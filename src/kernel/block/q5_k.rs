//! Q5_K: 8 groups of 32 codes of 5 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qh[32] | qs[128]`. Each 32 bytes of `qs` hold two groups, low
//! nibbles first; bit `i` of `qh` is the fifth bit of group `i`.

use super::part;
use super::q4_k::scales;
use crate::kernel::{Element, Lanes, batch, kernel};

kernel!(q5_k);

#[inline(always)]
fn q5_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<176>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let scales = scales(s, part(block, 0));
        let scales = batch::in_memory(&scales);
        if O::PARTICULAR && !batch::finite(scales.as_flattened()) {
            groups::<S, O, false>(s, block, scales, out);
        } else {
            groups::<S, O, true>(s, block, scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    block: &[u8; 176],
    [scales, minima]: &[[f32; 8]; 2],
    out: &mut [O::Cell; 256],
) {
    let high = s.bytes(part(block, 16));
    for (i, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let low = s.bytes(part(block, 48 + 32 * i));
        // the two groups' fifth bits, at bits 4 and 5
        let high = if i < 2 { s.shl_u16(high, 4 - 2 * i as u32) } else { s.shr_u16(high, 2 * i as u32 - 4) };
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (low, high) = if j == 0 { (low, high) } else { (s.shr_u16(low, 4), s.shr_u16(high, 1)) };
            let codes = s.or(s.and(low, s.splat_byte(15)), s.and(high, s.splat_byte(16)));
            let (scale, minimum) = (s.splat(scales[2 * i + j]), s.splat(minima[2 * i + j]));
            O::put::<S, PLAIN>(s, s.unsigned(codes).map(|codes| s.sub(s.mul(scale, codes), minimum)), out);
        }
    }
}
