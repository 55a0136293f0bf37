//! IQ4_XS (`block_iq4_xs`): 256 codes of 4 bits, entries of a codebook, in 8 groups of 32, 136 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale of the scales |
//! | 2 | `scales_h` | u16, bits 4 and 5 of the scales: group `g` at bit `2 * g` |
//! | 4 | `scales_l[4]` | bits 0 to 3 of the scales: group `g` at bit `4 * g` |
//! | 8 | `qs[128]` | codes: each 16 bytes hold a group, low nibbles first |
//!
//! `x = d * (scale - 32) * kvalues_iq4nl[q]`.

use crate::codebook::IQ4;
use crate::field::field;
use crate::half::from_f16;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(iq4_xs);

#[inline(always)]
fn iq4_xs<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::batches_of_8::<O, 136>(blocks, out) {
        let mut factors = [[0.0; 8]; 8];
        // checked on `d`: the scales are `d` times integers
        let mut finite = true;
        for (factors, block) in factors.iter_mut().zip(blocks) {
            let d = from_f16(*field(block, 0));
            let high = u32::from(u16::from_le_bytes(*field(block, 2)));
            let low = u32::from_le_bytes(*field(block, 4));
            for (g, scale) in factors.iter_mut().enumerate() {
                let code = low >> (4 * g) & 15 | (high >> (2 * g) & 3) << 4;
                *scale = d * (code.cast_signed() - 32) as f32;
            }
            finite &= d.is_finite();
        }
        let factors = batch::force_memory_operand(&factors);
        for ((block, scales), out) in blocks.iter().zip(factors).zip(out) {
            if O::IS_ROUNDED && !finite {
                groups::<S, O, false>(simd, field(block, 8), scales, out);
            } else {
                groups::<S, O, true>(simd, field(block, 8), scales, out);
            }
        }
    }
}

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    qs: &[u8; 128],
    scales: &[f32],
    out: &mut [O::Stored; 256],
) {
    let values = simd.load_f32(&IQ4);
    let pairs = qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(scales.as_chunks::<2>().0)
        .zip(out.as_chunks_mut::<64>().0);
    for ((qs, scales), out) in pairs {
        // two groups share a pair of tables; their codes need no unpacking beyond the lookup's own
        let values = [
            simd.mul(simd.splat(scales[0]), values),
            simd.mul(simd.splat(scales[1]), values),
        ];
        let tables = O::tables::<S, ASSUME_NORMAL>(simd, values);
        let (qs, _) = qs.as_chunks::<16>();
        for (i, (qs, out)) in qs.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
            O::lookup_nibbles(simd, tables, i, qs, out);
        }
    }
}
