//! TQ2_0 (`block_tq2_0`): 256 codes of 2 bits, one scale, 66 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `qs[64]` | codes: each 32 bytes hold 128, of which bits 0 and 1 are the first 32 |
//! | 64 | `d` | F16 scale |
//!
//! `x = d * (q - 1)`.

use crate::field::field;
use crate::half::from_f16;
use crate::{OutputElement, Simd, kernel};

kernel!(tq2_0);

/// The values of the codes, repeated: the lookup uses four bits, of which the upper two belong to another code and are ignored
/// this way without a mask.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0,
];

#[inline(always)]
fn tq2_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<66>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    let values = simd.load_f32(&VALUES);
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*field(block, 64));
        // one pair of equal tables per block, so there is no separate path for finite scales
        let tables = O::tables::<S, false>(simd, [simd.mul(values, simd.splat(d)); 2]);
        for (half, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let qs = simd.load_u8(field(block, 32 * half));
            for (i, out) in (0..).zip(out.as_chunks_mut::<32>().0) {
                O::lookup(simd, tables, [0; 2], simd.shr_u16(qs, 2 * i), out);
            }
        }
    }
}
