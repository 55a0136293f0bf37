//! Q4_1 (`block_q4_1`): 32 codes of 4 bits, scale and minimum, 20 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `m` | F16 minimum |
//! | 4 | `qs[16]` | codes, low nibbles first |
//!
//! `x = d * q + m`. Decoded like Q4_0.

use crate::{OutputElement, Simd, batch, kernel};

kernel!(q4_1);

#[inline(always)]
fn q4_1<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let codes = simd.load_f32(&batch::CODE_VALUES);
    let mut batches = batch::Batches::<O, 20, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.next_batch() {
        let (d, m) = (
            batch::widen_scales(simd, blocks, 0),
            batch::widen_scales(simd, blocks, 2),
        );
        // `&` rather than `&&`: no branch between the two loops
        let finite = batch::all_finite(d.as_flattened()) & batch::all_finite(m.as_flattened());
        let (d, m) = (
            batch::force_memory_operand(&d),
            batch::force_memory_operand(&m),
        );
        // a sum of two finite F16 products is a multiple of 2^-24: not subnormal
        for (((blocks, d), m), out) in blocks.iter().zip(d).zip(m).zip(out) {
            if O::IS_ROUNDED && !finite {
                batch::lookup_nibble_blocks::<S, O, false, 20>(
                    simd,
                    blocks,
                    4,
                    codes,
                    d,
                    Some(m),
                    out,
                );
            } else {
                batch::lookup_nibble_blocks::<S, O, true, 20>(
                    simd,
                    blocks,
                    4,
                    codes,
                    d,
                    Some(m),
                    out,
                );
            }
        }
    }
}
