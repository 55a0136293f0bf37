//! Q1_0 (`block_q1_0`): 128 codes of 1 bit, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, lowest bits first |
//!
//! `x = d` for a set bit, else `-d`.

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q1_0);

/// The signs, repeated: the lookup uses four bits, of which the code is the lowest.
static VALUES: [f32; 16] = [
    -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0,
];

#[inline(always)]
fn q1_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let values = simd.load_f32(&VALUES);
    let mut batches = batch::Batches::<O, 18, 128>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        // a batch of 64 blocks as for the small types, though a block has 128 elements: its scale has the same latency
        let d = batch::widen_scales(simd, blocks, 0);
        let d = batch::force_memory_operand(&d).as_flattened();
        for ((block, d), out) in blocks
            .as_flattened()
            .iter()
            .zip(d)
            .zip(out.as_flattened_mut())
        {
            // -d and d are computed once per block; a set bit becomes code 1
            let tables = O::tables::<S, false>(simd, [simd.mul(values, simd.splat(*d)); 2]);
            let (words, _) = field::<16>(block, 2).as_chunks();
            for (word, out) in words.iter().zip(out.as_chunks_mut::<32>().0) {
                O::lookup(
                    simd,
                    tables,
                    [0; 2],
                    simd.select_or_zero(u32::from_le_bytes(*word), simd.splat_u8(1)),
                    out,
                );
            }
        }
    }
}
