//! IQ4_XS: 8 groups of 32 codes of 4 bits into a codebook; each has a scale of 6 bits around 32.
//! `d (f16) | scales_h (u16) | scales_l[4] | qs[128]`. Each 16 bytes of `qs` hold a group, low nibbles first.

use super::part;
use crate::codebook::IQ4;
use crate::half::from_f16;
use crate::{Element, Lanes, batch, kernel};

kernel!(iq4_xs);

#[inline(always)]
fn iq4_xs<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<136>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
        let high = u32::from(u16::from_le_bytes(*part(block, 2)));
        let low = u32::from_le_bytes(*part(block, 4));
        let mut scales = [0.0; 8];
        for (g, scale) in scales.iter_mut().enumerate() {
            let code = low >> (4 * g) & 15 | (high >> (2 * g) & 3) << 4;
            *scale = d * (code.cast_signed() - 32) as f32;
        }
        let scales = batch::in_memory(&scales);
        if O::PARTICULAR && !d.is_finite() {
            groups::<S, O, false>(s, part(block, 8), scales, out);
        } else {
            groups::<S, O, true>(s, part(block, 8), scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(s: S, qs: &[u8; 128], scales: &[f32], out: &mut [O::Cell; 256]) {
    let values = s.floats(&IQ4);
    let pairs = qs.as_chunks::<32>().0.iter().zip(scales.as_chunks::<2>().0).zip(out.as_chunks_mut::<64>().0);
    for ((qs, scales), out) in pairs {
        let values = [s.mul(s.splat(scales[0]), values), s.mul(s.splat(scales[1]), values)];
        let tables = O::tables::<S, PLAIN>(s, values);
        let (qs, _) = qs.as_chunks::<16>();
        for (i, (qs, out)) in qs.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
            O::pick(s, tables, [i; 2], s.nibbles(qs), out);
        }
    }
}
