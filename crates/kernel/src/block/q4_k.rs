//! Q4_K (`block_q4_K`): 256 codes of 4 bits in 8 groups of 32, 144 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale of the scales |
//! | 2 | `dmin` | F16 scale of the minima |
//! | 4 | `scales[12]` | 8 scales and 8 minima of 6 bits, see [`unpack_scales`] |
//! | 16 | `qs[128]` | codes: each 32 bytes hold two groups, low nibbles first |
//!
//! `x = d * scale * q - dmin * minimum`.
//!
//! Each group has a lookup table of its 16 results. The scales of eight blocks are unpacked before any of these blocks is
//! decoded: 1.2 to 1.4 times faster (experiment 47). Widening the `d` and `dmin` of eight blocks together is slower, 0.9.

use crate::field::field;
use crate::unroll::unroll;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q4_k);

/// Unpacks the scales and minima of Q4_K and Q5_K from the first 16 bytes of a block, multiplied by `d` and `dmin`.
///
/// Bytes 0 to 3 of `scales[12]` hold scales 0 to 3 in bits 0 to 5, bytes 4 to 7 minima 0 to 3 likewise. Bytes 8 to 11 hold
/// bits 0 to 3 of scales 4 to 7 (low nibbles) and minima 4 to 7 (high nibbles), whose bits 4 and 5 are bits 6 and 7 of the
/// former eight bytes.
#[inline(always)]
pub(super) fn unpack_scales<S: Simd>(simd: S, header: &[u8; 16]) -> [[f32; 8]; 2] {
    let [d, min] = batch::widen_2_f16(simd, field(header, 0));
    let [first, middle, last] = unroll!(at in [4, 8, 12] => u32::from_le_bytes(*field(header, at)));
    // four scales or minima per word, one per byte
    let words = [
        // a mask and a shift serve four scales; ggml's `get_scale_min_k4` extracts one scale and one minimum per call
        first & 0x3f3f_3f3f,
        last & 0x0f0f_0f0f | first >> 2 & 0x3030_3030,
        middle & 0x3f3f_3f3f,
        last >> 4 & 0x0f0f_0f0f | middle >> 2 & 0x3030_3030,
    ];
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    // the 8 scales and 8 minima fill one vector, so they are converted and multiplied at once
    let mut factors = [d; 16];
    factors[8..].fill(min);
    let scaled = simd.to_f32_array(simd.mul(
        simd.load_f32(&factors),
        simd.u8_to_f32(simd.concat_u8x16(&bytes, &bytes))[0],
    ));
    let ([scales, minima], _) = scaled.as_chunks::<8>() else {
        unreachable!("16 values are two halves")
    };
    [*scales, *minima]
}

#[inline(always)]
fn q4_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    for (blocks, out) in batch::batches_of_8::<O, 144>(blocks, out) {
        // scales and minima of up to eight blocks, before any of these is decoded: see `batches_of_8`
        let mut factors = [[[0.0; 8]; 2]; 8];
        for (factors, block) in factors.iter_mut().zip(blocks) {
            *factors = unpack_scales(simd, field(block, 0));
        }
        let finite = batch::all_finite(factors.as_flattened().as_flattened());
        let factors = batch::force_memory_operand(&factors);
        for ((block, [scales, minima]), out) in blocks.iter().zip(factors).zip(out) {
            if O::IS_ROUNDED && !finite {
                groups::<S, O, false>(simd, field(block, 16), scales, minima, out);
            } else {
                groups::<S, O, true>(simd, field(block, 16), scales, minima, out);
            }
        }
    }
}

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    qs: &[u8; 128],
    scales: &[f32],
    minima: &[f32],
    out: &mut [O::Stored; 256],
) {
    let codes = simd.load_f32(&batch::CODE_VALUES);
    let factors = scales
        .as_chunks::<2>()
        .0
        .iter()
        .zip(minima.as_chunks::<2>().0);
    for ((qs, out), (scales, minima)) in qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<64>().0)
        .zip(factors)
    {
        // two groups share 32 bytes of codes and a pair of tables
        // as the reference: `d * scale * q` is exact, and the subtraction rounds
        let first = simd.sub(
            simd.mul(simd.splat(scales[0]), codes),
            simd.splat(minima[0]),
        );
        let second = simd.sub(
            simd.mul(simd.splat(scales[1]), codes),
            simd.splat(minima[1]),
        );
        let tables = O::tables::<S, ASSUME_NORMAL>(simd, [first, second]);
        let qs = simd.load_u8(qs);
        for (which, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            // the lookup ignores the upper four bits, so the codes need no mask
            let qs = if which == 0 { qs } else { simd.shr_u16(qs, 4) };
            O::lookup(simd, tables, [which; 2], qs, out);
        }
    }
}
