//! Q4_K: 8 groups of 32 codes of 4 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qs[128]`. Each 32 bytes of `qs` hold two groups, low nibbles first.

use super::part;
use crate::{Element, Lanes, batch, each, kernel};

kernel!(q4_k);

/// Scales and minima of Q4_K and Q5_K, with `d` and `dmin` applied: 6 bits of the first four each, of which two
/// belong to the last four.
#[inline(always)]
pub(super) fn scales<S: Lanes>(s: S, header: &[u8; 16]) -> [[f32; 8]; 2] {
    let [d, min] = batch::two_halves(s, part(header, 0));
    let [first, middle, last] = each!(at in [4, 8, 12] => u32::from_le_bytes(*part(header, at)));
    // a byte each of four
    let words = [
        first & 0x3f3f_3f3f,
        last & 0x0f0f_0f0f | first >> 2 & 0x3030_3030,
        middle & 0x3f3f_3f3f,
        last >> 4 & 0x0f0f_0f0f | middle >> 2 & 0x3030_3030,
    ];
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    let mut factors = [d; 16];
    factors[8..].fill(min);
    let scaled = s.array(s.mul(s.floats(&factors), s.unsigned(s.pair(&bytes, &bytes))[0]));
    let ([scales, minima], _) = scaled.as_chunks::<8>() else {
        unreachable!("sixteen are two eights")
    };
    [*scales, *minima]
}

#[inline(always)]
fn q4_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::eights::<O, 144>(blocks, out) {
        let mut factors = [[[0.0; 8]; 2]; 8];
        for (factors, block) in factors.iter_mut().zip(blocks) {
            *factors = scales(s, part(block, 0));
        }
        let finite = batch::finite(factors.as_flattened().as_flattened());
        let factors = batch::in_memory(&factors);
        for ((block, [scales, minima]), out) in blocks.iter().zip(factors).zip(out) {
            if O::PARTICULAR && !finite {
                groups::<S, O, false>(s, part(block, 16), scales, minima, out);
            } else {
                groups::<S, O, true>(s, part(block, 16), scales, minima, out);
            }
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    qs: &[u8; 128],
    scales: &[f32],
    minima: &[f32],
    out: &mut [O::Cell; 256],
) {
    let codes = s.floats(&batch::CODES);
    let numbers = scales
        .as_chunks::<2>()
        .0
        .iter()
        .zip(minima.as_chunks::<2>().0);
    for ((qs, out), (scales, minima)) in qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<64>().0)
        .zip(numbers)
    {
        let first = s.sub(s.mul(s.splat(scales[0]), codes), s.splat(minima[0]));
        let second = s.sub(s.mul(s.splat(scales[1]), codes), s.splat(minima[1]));
        let tables = O::tables::<S, PLAIN>(s, [first, second]);
        let qs = s.bytes(qs);
        for (which, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let qs = if which == 0 { qs } else { s.shr_u16(qs, 4) };
            O::pick(s, tables, [which; 2], qs, out);
        }
    }
}
