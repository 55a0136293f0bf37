//! IQ4_XS: 8 groups of 32 codes of 4 bits into a codebook; each has a scale of 6 bits around 32.
//! `d (f16) | scales_h (u16) | scales_l[4] | qs[128]`. Each 16 bytes of `qs` hold a group, low nibbles first.

use super::part;
use crate::codebook::IQ4;
use crate::half::from_f16;
use crate::{Element, Lanes, batch, kernel};

kernel!(iq4_xs);

#[inline(always)]
fn iq4_xs<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::eights::<O, 136>(blocks, out) {
        let mut factors = [[0.0; 8]; 8];
        let mut finite = true;
        for (factors, block) in factors.iter_mut().zip(blocks) {
            let d = from_f16(*part(block, 0));
            let high = u32::from(u16::from_le_bytes(*part(block, 2)));
            let low = u32::from_le_bytes(*part(block, 4));
            for (g, scale) in factors.iter_mut().enumerate() {
                let code = low >> (4 * g) & 15 | (high >> (2 * g) & 3) << 4;
                *scale = d * (code.cast_signed() - 32) as f32;
            }
            finite &= d.is_finite();
        }
        let factors = batch::in_memory(&factors);
        for ((block, scales), out) in blocks.iter().zip(factors).zip(out) {
            if O::PARTICULAR && !finite {
                groups::<S, O, false>(s, part(block, 8), scales, out);
            } else {
                groups::<S, O, true>(s, part(block, 8), scales, out);
            }
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    qs: &[u8; 128],
    scales: &[f32],
    out: &mut [O::Cell; 256],
) {
    let values = s.floats(&IQ4);
    let pairs = qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(scales.as_chunks::<2>().0)
        .zip(out.as_chunks_mut::<64>().0);
    for ((qs, scales), out) in pairs {
        let values = [
            s.mul(s.splat(scales[0]), values),
            s.mul(s.splat(scales[1]), values),
        ];
        let tables = O::tables::<S, PLAIN>(s, values);
        let (qs, _) = qs.as_chunks::<16>();
        for (i, (qs, out)) in qs.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
            O::pick_nibbles(s, tables, i, qs, out);
        }
    }
}
