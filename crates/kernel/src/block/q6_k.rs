//! Q6_K (`block_q6_K`): 256 codes of 6 bits in 16 groups of 16, 210 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `ql[128]` | bits 0 to 3: of each 128 codes, 64 bytes, low nibbles first |
//! | 128 | `qh[64]` | bits 4 and 5: of each 128 codes, 32 bytes, of which bits 0 and 1 are the first 32 |
//! | 192 | `scales[16]` | signed 8-bit scales |
//! | 208 | `d` | F16 scale of the scales |
//!
//! `x = d * scale * (q - 32)`.
//!
//! Widening the scales of several blocks first gains nothing here (experiment 47).

use crate::field::field;
use crate::half::from_f16;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q6_k);

#[inline(always)]
fn q6_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<210>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        // the 16 scales fill half a vector of bytes; the other half is not used
        let scales = batch::scale_i8(
            simd,
            from_f16(*field(block, 208)),
            simd.concat_u8x16(field(block, 192), field(block, 192)),
        );
        let (finite, scales) = (
            batch::all_finite(&scales),
            batch::force_memory_operand(&scales),
        );
        if O::IS_ROUNDED && !finite {
            groups::<S, O, false>(simd, block, scales, out);
        } else {
            groups::<S, O, true>(simd, block, scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    block: &[u8; 210],
    scales: &[f32],
    out: &mut [O::Stored; 256],
) {
    for ((half, out), scales) in out
        .as_chunks_mut::<128>()
        .0
        .iter_mut()
        .enumerate()
        .zip(scales.as_chunks::<8>().0)
    {
        let low = [
            simd.load_u8(field(block, 64 * half)),
            simd.load_u8(field(block, 64 * half + 32)),
        ];
        let high = simd.load_u8(field(block, 128 + 32 * half));
        for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            // the first 64 codes are low nibbles, the last 64 high ones
            let low = if i < 2 {
                low[i]
            } else {
                simd.shr_u16(low[i - 2], 4)
            };
            // the two high bits move to bits 4 and 5, where the mask 0x30 keeps them
            let high = match i {
                0 => simd.shl_u16(high, 4),
                1 => simd.shl_u16(high, 2),
                2 => high,
                _ => simd.shr_u16(high, 2),
            };
            let codes = simd.or(
                simd.and(low, simd.splat_u8(0x0f)),
                simd.and(high, simd.splat_u8(0x30)),
            );
            // subtracting 32 as a byte is exact and cheaper than in F32
            let [first, second] = simd.i8_to_f32(simd.sub_u8(codes, simd.splat_u8(32)));
            O::store::<S, ASSUME_NORMAL>(
                simd,
                [
                    simd.mul(simd.splat(scales[2 * i]), first),
                    simd.mul(simd.splat(scales[2 * i + 1]), second),
                ],
                out,
            );
        }
    }
}
