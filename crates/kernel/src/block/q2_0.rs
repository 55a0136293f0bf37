//! Q2_0 (`block_q2_0`): 64 codes of 2 bits, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, lowest bits first |
//!
//! `x = d * (q - 1)`.

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q2_0);

/// The values of codes in bits 0 and 1, and of codes in bits 2 and 3 (see [`Simd::unpack_bit_pairs`]), the other bits being
/// zero. Other indices do not occur.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0,
];

#[inline(always)]
fn q2_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let values = simd.load_f32(&VALUES);
    let mut batches = batch::Batches::<O, 18, 64>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let d = batch::widen_scales(simd, blocks, 0);
        let d = batch::force_memory_operand(&d).as_flattened();
        for ((block, d), out) in blocks
            .as_flattened()
            .iter()
            .zip(d)
            .zip(out.as_flattened_mut())
        {
            // one pair of equal tables per block, so there is no separate path for finite scales
            let tables = O::tables::<S, false>(simd, [simd.mul(values, simd.splat(*d)); 2]);
            let (eights, _) = field::<16>(block, 2).as_chunks();
            for (eight, out) in eights.iter().zip(out.as_chunks_mut::<32>().0) {
                O::lookup(simd, tables, [0; 2], simd.unpack_bit_pairs(eight), out);
            }
        }
    }
}
