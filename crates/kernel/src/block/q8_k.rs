//! Q8_K (`block_q8_K`): 256 codes of 8 bits, one F32 scale, 292 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F32 scale |
//! | 4 | `qs[256]` | signed codes |
//! | 260 | `bsums[16]` | i16, sums of 16 codes each; only dot products use them |
//!
//! `x = d * q`. The scale is an F32, which may itself be subnormal: the check is [`f32::is_normal`].

use crate::field::field;
use crate::{OutputElement, Simd, half, kernel};

kernel!(q8_k);

#[inline(always)]
fn q8_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<292>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = f32::from_le_bytes(*field(block, 0));
        // a normal F32 times an integer is not subnormal; zero, for which `is_normal` is false, takes the exact path too;
        // a NaN scale becomes the one NaN of all kernels, whatever its payload
        if O::IS_ROUNDED && !d.is_normal() {
            codes::<S, O, false>(
                simd,
                field(block, 4),
                if d.is_nan() { half::NAN } else { d },
                out,
            );
        } else {
            codes::<S, O, true>(simd, field(block, 4), d, out);
        }
    }
}

#[inline(always)]
fn codes<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    codes: &[u8; 256],
    d: f32,
    out: &mut [O::Stored; 256],
) {
    let d = simd.splat(d);
    for (codes, out) in codes
        .as_chunks::<32>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<32>().0)
    {
        let [low, high] = simd.i8_to_f32(simd.load_u8(codes));
        // the one block type whose product rounds: a scale of 24 bits times a code of 7
        O::store::<S, ASSUME_NORMAL>(simd, [simd.mul(d, low), simd.mul(d, high)], out);
    }
}
