//! Q5_K (`block_q5_K`): 256 codes of 5 bits in 8 groups of 32, 176 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale of the scales |
//! | 2 | `dmin` | F16 scale of the minima |
//! | 4 | `scales[12]` | 8 scales and 8 minima of 6 bits, as in Q4_K |
//! | 16 | `qh[32]` | bit `g` of byte `j` is bit 4 of code `j` of group `g` |
//! | 48 | `qs[128]` | bits 0 to 3 of the codes: each 32 bytes hold two groups, low nibbles first |
//!
//! `x = d * scale * q - dmin * minimum`.

use super::q4_k::unpack_scales;
use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q5_k);

#[inline(always)]
fn q5_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::batches_of_8::<O, 176>(blocks, out) {
        let mut factors = [[[0.0; 8]; 2]; 8];
        for (factors, block) in factors.iter_mut().zip(blocks) {
            *factors = unpack_scales(simd, field(block, 0));
        }
        let finite = batch::all_finite(factors.as_flattened().as_flattened());
        let factors = batch::force_memory_operand(&factors);
        for (((block, first), second), out) in blocks
            .iter()
            .zip(factors)
            .zip(batch::reload_operand(simd, factors))
            .zip(out)
        {
            if O::IS_ROUNDED && !finite {
                groups::<S, O, false>(simd, block, first, second, out);
            } else {
                groups::<S, O, true>(simd, block, first, second, out);
            }
        }
    }
}

/// `first` and `second` hold the same scales and minima, for the two halves of 16 elements of each group: see
/// [`batch::reload_operand`].
#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    block: &[u8; 176],
    first: &[[f32; 8]; 2],
    second: &[[f32; 8]; 2],
    out: &mut [O::Stored; 256],
) {
    // one load for all eight groups: each group uses one bit of every byte
    let mut high = simd.load_u8(field(block, 16));
    for (i, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let low = simd.load_u8(field(block, 48 + 32 * i));
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = simd.and(
                if j == 0 { low } else { simd.shr_u16(low, 4) },
                simd.splat_u8(15),
            );
            let codes = simd.or(low, simd.shl_u16(simd.and(high, simd.splat_u8(1)), 4));
            // the next group's bit moves to bit 0; bits from the next byte enter at the top and never get that far
            high = simd.shr_u16(high, 1);
            let g = 2 * i + j;
            let values = simd.u8_to_f32(codes);
            // as Q4_K: the product is exact, the subtraction rounds
            let values = [
                simd.sub(
                    simd.mul(simd.splat(first[0][g]), values[0]),
                    simd.splat(first[1][g]),
                ),
                simd.sub(
                    simd.mul(simd.splat(second[0][g]), values[1]),
                    simd.splat(second[1][g]),
                ),
            ];
            O::store::<S, ASSUME_NORMAL>(simd, values, out);
        }
    }
}
