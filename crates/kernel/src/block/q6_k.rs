//! Q6_K: 16 groups of 16 codes of 6 bits around 32; each has a scale of 8 bits.
//! `ql[128] | qh[64] | scales[16] (i8) | d (f16)`. Of each 128 codes, `ql` has 64 bytes, low nibbles
//! first, and `qh` 32 bytes, lowest bits first.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, batch, kernel};

kernel!(q6_k);

#[inline(always)]
fn q6_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<210>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let scales = batch::signed_scales(
            s,
            from_f16(*part(block, 208)),
            s.pair(part(block, 192), part(block, 192)),
        );
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
    block: &[u8; 210],
    scales: &[f32],
    out: &mut [O::Cell; 256],
) {
    for ((half, out), scales) in out
        .as_chunks_mut::<128>()
        .0
        .iter_mut()
        .enumerate()
        .zip(scales.as_chunks::<8>().0)
    {
        let low = [
            s.bytes(part(block, 64 * half)),
            s.bytes(part(block, 64 * half + 32)),
        ];
        let high = s.bytes(part(block, 128 + 32 * half));
        for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = if i < 2 {
                low[i]
            } else {
                s.shr_u16(low[i - 2], 4)
            };
            let high = match i {
                0 => s.shl_u16(high, 4),
                1 => s.shl_u16(high, 2),
                2 => high,
                _ => s.shr_u16(high, 2),
            };
            let codes = s.or(
                s.and(low, s.splat_byte(0x0f)),
                s.and(high, s.splat_byte(0x30)),
            );
            let [first, second] = s.signed(s.sub_bytes(codes, s.splat_byte(32)));
            O::put::<S, PLAIN>(
                s,
                [
                    s.mul(s.splat(scales[2 * i]), first),
                    s.mul(s.splat(scales[2 * i + 1]), second),
                ],
                out,
            );
        }
    }
}
