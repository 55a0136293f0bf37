//! Q3_K: 16 groups of 16 codes of 3 bits around 4; each has a scale of 6 bits around 32.
//! `hmask[32] | qs[64] | scales[12] | d (f16)`. Each 32 bytes of `qs` hold 128 codes, lowest bits first;
//! bit `i` of `hmask` is the third bit of the `i`th 32 codes.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, batch, each, kernel};

kernel!(q3_k);

/// Scales: 16 low nibbles in 8 bytes, then 16 upper pairs of bits in 4.
#[inline(always)]
fn scales(packed: &[u8; 12]) -> [u8; 16] {
    let [first, second, upper] = each!(at in [0, 4, 8] => u32::from_le_bytes(*part(packed, at)));
    let words = [
        first & 0x0f0f_0f0f | upper << 4 & 0x3030_3030,
        second & 0x0f0f_0f0f | upper << 2 & 0x3030_3030,
        first >> 4 & 0x0f0f_0f0f | upper & 0x3030_3030,
        second >> 4 & 0x0f0f_0f0f | upper >> 2 & 0x3030_3030,
    ];
    let mut scales = [0; 16];
    for (scales, word) in scales.as_chunks_mut().0.iter_mut().zip(words) {
        *scales = word.to_le_bytes();
    }
    scales
}

#[inline(always)]
fn q3_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<110>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let scales = scales(part(block, 96));
        let scales = s.sub_bytes(s.pair(&scales, &scales), s.splat_byte(32));
        let scales = batch::signed_scales(s, from_f16(*part(block, 108)), scales);
        let (finite, scales) = (batch::finite(&scales), batch::in_memory(&scales));
        if O::PARTICULAR && !finite {
            groups::<S, O, false>(s, block, scales, out);
        } else {
            groups::<S, O, true>(s, block, scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    block: &[u8; 110],
    scales: &[f32],
    out: &mut [O::Cell; 256],
) {
    let mut third = s.bytes(part(block, 0));
    for ((half, out), scales) in out
        .as_chunks_mut::<128>()
        .0
        .iter_mut()
        .enumerate()
        .zip(scales.as_chunks::<8>().0)
    {
        let qs = s.bytes(part(block, 32 + 32 * half));
        // the first four bits of `third` go to bit 2
        let shifts = [(0, 2, 0), (2, 1, 0), (4, 0, 0), (6, 0, 1)];
        for ((i, out), (at, left, right)) in out
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .enumerate()
            .zip(shifts)
        {
            let low = s.and(s.shr_u16(qs, at), s.splat_byte(3));
            let third = s.shr_u16(s.shl_u16(third, left), right);
            let codes = s.or(low, s.and(third, s.splat_byte(4)));
            let [first, second] = s.signed(s.sub_bytes(codes, s.splat_byte(4)));
            let (first, second) = (
                s.mul(s.splat(scales[2 * i]), first),
                s.mul(s.splat(scales[2 * i + 1]), second),
            );
            O::put::<S, PLAIN>(s, [first, second], out);
        }
        third = s.shr_u16(third, 4);
    }
}
