//! Q8_0 (`block_q8_0`): 32 codes of 8 bits, one scale, 34 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[32]` | signed codes |
//!
//! `x = q * d`.

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q8_0);

#[inline(always)]
fn q8_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    decode_i8::<S, O, 34, 2>(simd, blocks, out);
}

/// Decodes blocks of `BYTES` bytes that begin with their scale and have 32 signed codes from `CODES` on: also Q8_1.
#[inline(always)]
pub(super) fn decode_i8<S: Simd, O: OutputElement, const BYTES: usize, const CODES: usize>(
    simd: S,
    blocks: &[u8],
    out: &mut [u8],
) {
    let mut batches = batch::Batches::<O, BYTES, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let d = batch::widen_scales(simd, blocks, 0);
        let (finite, d) = (
            batch::all_finite(d.as_flattened()),
            batch::force_memory_operand(&d),
        );
        for (((blocks, first), second), out) in blocks
            .iter()
            .zip(d)
            .zip(batch::reload_operand(simd, d))
            .zip(out)
        {
            if O::IS_ROUNDED && !finite {
                decode_16::<S, O, false, BYTES, CODES>(simd, blocks, [first, second], out);
            } else {
                decode_16::<S, O, true, BYTES, CODES>(simd, blocks, [first, second], out);
            }
        }
    }
}

#[inline(always)]
fn decode_16<
    S: Simd,
    O: OutputElement,
    const ASSUME_NORMAL: bool,
    const BYTES: usize,
    const CODES: usize,
>(
    simd: S,
    blocks: &[[u8; BYTES]; 16],
    d: [&[f32; 16]; 2],
    out: &mut [[O::Stored; 32]; 16],
) {
    // the two halves read the same scale from two slices: see `batch::reload_operand`
    for (((block, first), second), out) in blocks.iter().zip(d[0]).zip(d[1]).zip(out) {
        // no table: 256 possible results are more than the 32 elements that would use them
        let [low, high] = simd.i8_to_f32(simd.load_u8(field(block, CODES)));
        O::store::<S, ASSUME_NORMAL>(
            simd,
            [
                simd.mul(low, simd.splat(*first)),
                simd.mul(high, simd.splat(*second)),
            ],
            out,
        );
    }
}
