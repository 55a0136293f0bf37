//! MXFP4 (`block_mxfp4`): 32 codes of FP4 (E2M1), one scale of 8 bits, 17 bytes. Defined by OCP Microscaling Formats 1.0.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `e` | E8M0 scale, a power of two |
//! | 1 | `qs[16]` | codes, low nibbles first |
//!
//! `x = 2^(e - 128) * kvalues_mxfp4[q]`, where the table holds twice the values of E2M1, as ggml has it.

use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::{OutputElement, Simd, batch, kernel};

kernel!(mxfp4);

#[inline(always)]
fn mxfp4<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let values = simd.load_f32(&FP4_DOUBLED);
    let mut batches = batch::Batches::<O, 17, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        // entries beyond the batch stay 2, which is not subnormal
        let mut scales = [[2; 16]; batch::BATCH];
        for (scale, block) in scales
            .as_flattened_mut()
            .iter_mut()
            .zip(blocks.as_flattened())
        {
            *scale = block[0];
        }
        // separate loops over whole arrays, each of which vectorises
        let (mut d, mut subnormal) = ([[0.0; 16]; batch::BATCH], false);
        for (d, scale) in d.as_flattened_mut().iter_mut().zip(scales.as_flattened()) {
            *d = e8m0_half(*scale);
        }
        for scale in scales.as_flattened() {
            // checked on the stored codes, bytes, of which there are a quarter as many vectors as of the scales
            subnormal |= *scale < 2;
        }
        for ((blocks, d), out) in blocks.iter().zip(batch::force_memory_operand(&d)).zip(out) {
            // an E8M0 scale is never NaN here; exponents 0 and 1 are the only ones that give subnormals
            if O::IS_ROUNDED && subnormal {
                batch::lookup_nibble_blocks::<S, O, false, 17>(
                    simd, blocks, 1, values, d, None, out,
                );
            } else {
                batch::lookup_nibble_blocks::<S, O, true, 17>(
                    simd, blocks, 1, values, d, None, out,
                );
            }
        }
    }
}
