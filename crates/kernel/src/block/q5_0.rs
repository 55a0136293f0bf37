//! Q5_0 (`block_q5_0`): 32 codes of 5 bits, one scale, 22 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qh[4]` | u32, bit `i` is bit 4 of code `i` |
//! | 6 | `qs[16]` | bits 0 to 3 of the codes, low nibbles first |
//!
//! `x = d * (q - 16)`.
//!
//! Five bits are too many for a lookup table, so codes are made signed bytes, converted and multiplied.

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q5_0);

#[inline(always)]
fn q5_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let mut batches = batch::Batches::<O, 22, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let d = batch::widen_scales(simd, blocks, 0);
        // the check reads the array, the loop below opaque slices, from which each scale is broadcast by its load
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
                decode_16::<S, O, false>(simd, blocks, [first, second], out);
            } else {
                decode_16::<S, O, true>(simd, blocks, [first, second], out);
            }
        }
    }
}

#[inline(always)]
fn decode_16<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    blocks: &[[u8; 22]; 16],
    d: [&[f32; 16]; 2],
    out: &mut [[O::Stored; 32]; 16],
) {
    for (((block, first), second), out) in blocks.iter().zip(d[0]).zip(d[1]).zip(out) {
        // q - 16 as a signed byte: bit 4 set leaves the nibble, bit 4 clear adds 0xf0 = -16
        // no subtraction: the inverted fifth bit makes the sign-extended byte in one step
        let fifth = simd.select_or_zero(!u32::from_le_bytes(*field(block, 2)), simd.splat_u8(0xf0));
        let codes = simd.or(simd.unpack_nibbles(field(block, 6)), fifth);
        let [low, high] = simd.i8_to_f32(codes);
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
