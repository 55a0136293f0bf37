//! Q5_K: 8 groups of 32 codes of 5 bits; each has a scale and a minimum of 6 bits.
//! `d (f16) | dmin (f16) | scales[12] | qh[32] | qs[128]`. Each 32 bytes of `qs` hold two groups, low
//! nibbles first; bit `i` of `qh` is the fifth bit of group `i`.

use super::part;
use super::q4_k::scales;
use crate::{Element, Lanes, batch, kernel};

kernel!(q5_k);

#[inline(always)]
fn q5_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::eights::<O, 176>(blocks, out) {
        let mut factors = [[[0.0; 8]; 2]; 8];
        for (factors, block) in factors.iter_mut().zip(blocks) {
            *factors = scales(s, part(block, 0));
        }
        let finite = batch::finite(factors.as_flattened().as_flattened());
        let factors = batch::in_memory(&factors);
        for (((block, first), second), out) in blocks
            .iter()
            .zip(factors)
            .zip(batch::again(s, factors))
            .zip(out)
        {
            if O::PARTICULAR && !finite {
                groups::<S, O, false>(s, block, first, second, out);
            } else {
                groups::<S, O, true>(s, block, first, second, out);
            }
        }
    }
}

/// Scales and minima come twice, for the first and the second sixteen elements of each group.
#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    block: &[u8; 176],
    first: &[[f32; 8]; 2],
    second: &[[f32; 8]; 2],
    out: &mut [O::Cell; 256],
) {
    let mut high = s.bytes(part(block, 16));
    for (i, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let low = s.bytes(part(block, 48 + 32 * i));
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = s.and(
                if j == 0 { low } else { s.shr_u16(low, 4) },
                s.splat_byte(15),
            );
            let codes = s.or(low, s.shl_u16(s.and(high, s.splat_byte(1)), 4));
            high = s.shr_u16(high, 1);
            let g = 2 * i + j;
            let values = s.unsigned(codes);
            let values = [
                s.sub(s.mul(s.splat(first[0][g]), values[0]), s.splat(first[1][g])),
                s.sub(
                    s.mul(s.splat(second[0][g]), values[1]),
                    s.splat(second[1][g]),
                ),
            ];
            O::put::<S, PLAIN>(s, values, out);
        }
    }
}
