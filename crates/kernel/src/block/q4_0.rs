//! Q4_0 (`block_q4_0`): 32 codes of 4 bits, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, low nibbles first |
//!
//! `x = d * (q - 8)`.
//!
//! Each block's 16 possible results are computed and rounded once, and 32 codes select among them; scales of 64 blocks are
//! widened first (see [`batch`]).

use crate::{OutputElement, Simd, batch, kernel};

kernel!(q4_0);

/// The values of the codes.
static VALUES: [f32; 16] = [
    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
];

#[inline(always)]
fn q4_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    decode_table::<S, O>(simd, &VALUES, blocks, out);
}

/// Decodes blocks of Q4_0's layout whose codes select one of 16 `values`: also IQ4_NL.
#[inline(always)]
pub(super) fn decode_table<S: Simd, O: OutputElement>(
    simd: S,
    values: &[f32; 16],
    blocks: &[u8],
    out: &mut [u8],
) {
    let values = simd.load_f32(values);
    let mut batches = batch::Batches::<O, 18, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let d = batch::widen_scales(simd, blocks, 0);
        // the check reads the array, the loop below an opaque slice, from which each scale is broadcast by its load
        let (finite, d) = (
            batch::all_finite(d.as_flattened()),
            batch::force_memory_operand(&d),
        );
        for ((blocks, d), out) in blocks.iter().zip(d).zip(out) {
            // for finite scales no result is subnormal or NaN: see `OutputElement::IS_ROUNDED`
            if O::IS_ROUNDED && !finite {
                batch::lookup_nibble_blocks::<S, O, false, 18>(
                    simd, blocks, 2, values, d, None, out,
                );
            } else {
                batch::lookup_nibble_blocks::<S, O, true, 18>(
                    simd, blocks, 2, values, d, None, out,
                );
            }
        }
    }
}
