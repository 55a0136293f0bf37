//! Q5_1 (`block_q5_1`): 32 codes of 5 bits, scale and minimum, 24 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `m` | F16 minimum |
//! | 4 | `qh[4]` | u32, bit `i` is bit 4 of code `i` |
//! | 8 | `qs[16]` | bits 0 to 3 of the codes, low nibbles first |
//!
//! `x = d * q + m`.

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q5_1);

#[inline(always)]
fn q5_1<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let mut batches = batch::Batches::<O, 24, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let (d, m) = (
            batch::widen_scales(simd, blocks, 0),
            batch::widen_scales(simd, blocks, 2),
        );
        let finite = batch::all_finite(d.as_flattened()) & batch::all_finite(m.as_flattened());
        let (d, m) = (
            batch::force_memory_operand(&d),
            batch::force_memory_operand(&m),
        );
        let again = batch::reload_operand(simd, d)
            .iter()
            .zip(batch::reload_operand(simd, m));
        for (((blocks, first), second), out) in
            blocks.iter().zip(d.iter().zip(m)).zip(again).zip(out)
        {
            if O::IS_ROUNDED && !finite {
                decode_16::<S, O, false>(simd, blocks, first, second, out);
            } else {
                decode_16::<S, O, true>(simd, blocks, first, second, out);
            }
        }
    }
}

#[inline(always)]
fn decode_16<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    blocks: &[[u8; 24]; 16],
    first: (&[f32; 16], &[f32; 16]),
    second: (&[f32; 16], &[f32; 16]),
    out: &mut [[O::Stored; 32]; 16],
) {
    for (i, (block, out)) in blocks.iter().zip(out).enumerate() {
        // bit 4 is put where the nibble leaves room: codes are unsigned 0 to 31
        let fifth = simd.select_or_zero(u32::from_le_bytes(*field(block, 4)), simd.splat_u8(16));
        let codes = simd.or(simd.unpack_nibbles(field(block, 8)), fifth);
        let [low, high] = simd.u8_to_f32(codes);
        // as the reference: `d * q` is exact, and the addition of the minimum rounds
        let low = simd.add(
            simd.mul(low, simd.splat(first.0[i])),
            simd.splat(first.1[i]),
        );
        let high = simd.add(
            simd.mul(high, simd.splat(second.0[i])),
            simd.splat(second.1[i]),
        );
        O::store::<S, ASSUME_NORMAL>(simd, [low, high], out);
    }
}
