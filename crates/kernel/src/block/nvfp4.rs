//! NVFP4 (`block_nvfp4`): 64 codes of FP4 (E2M1) in 4 groups of 16, 36 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d[4]` | UE4M3 scale per group |
//! | 4 | `qs[32]` | codes: each 8 bytes hold a group, low nibbles first |
//!
//! `x = ue4m3(d) / 2 * kvalues_mxfp4[q]`, where the table holds twice the values of E2M1. The second-level scale of the whole
//! tensor is a tensor of its own in the file and is not applied here.

use crate::codebook::{FP4_DOUBLED, ue4m3_halves};
use crate::field::field;
use crate::unroll::unroll;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(nvfp4);

#[inline(always)]
fn nvfp4<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let values = simd.load_f32(&FP4_DOUBLED);
    let mut batches = batch::Batches::<O, 36, 64>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let mut d = [[[0.0; 16]; 4]; batch::BATCH];
        for (d, blocks) in d
            .as_flattened_mut()
            .iter_mut()
            .zip(blocks.as_flattened().as_chunks::<4>().0)
        {
            // four blocks have 16 scales
            *d = ue4m3_halves(
                simd,
                unroll!(i in [0, 1, 2, 3] => u32::from_le_bytes(*field(&blocks[i], 0))),
            );
        }
        let (d, _) = batch::force_memory_operand(d.as_flattened().as_flattened()).as_chunks::<4>();
        for ((block, d), out) in blocks
            .as_flattened()
            .iter()
            .zip(d)
            .zip(out.as_flattened_mut())
        {
            for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                // UE4M3 has no infinity, its NaN is taken as zero, and its smallest value is normal in F32
                let codes = simd.unpack_nibbles_per_8(field(block, 4 + 16 * g));
                O::lookup_scaled::<S, true>(simd, values, [d[2 * g], d[2 * g + 1]], codes, out);
            }
        }
    }
}
