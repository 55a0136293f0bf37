//! Q3_K (`block_q3_K`): 256 codes of 3 bits in 16 groups of 16, 110 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `hmask[32]` | bit `i` of byte `j` is bit 2 of code `32 * i + j` |
//! | 32 | `qs[64]` | bits 0 and 1 of the codes: each 32 bytes hold 128, of which bits 0 and 1 are the first 32 |
//! | 96 | `scales[12]` | 16 scales of 6 bits, see [`unpack_scales`] |
//! | 108 | `d` | F16 scale of the scales |
//!
//! `x = d * (scale - 32) * (q - 4)`.
//!
//! Widening the scales of several blocks first gains nothing here (experiment 47).

use crate::field::field;
use crate::half::from_f16;
use crate::unroll::unroll;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q3_k);

/// Unpacks the scales: bits 0 to 3 are nibbles of bytes 0 to 7 (low nibbles first), bits 4 and 5 are pairs of bits of bytes 8
/// to 11 (lowest pairs first). Four scales at a time, in words.
#[inline(always)]
fn unpack_scales(packed: &[u8; 12]) -> [u8; 16] {
    // bytes 0 to 3 are scales 0 to 3 and 8 to 11, bytes 4 to 7 scales 4 to 7 and 12 to 15; pair `p` of the upper bytes
    // completes scales 4 * p to 4 * p + 3
    // one mask and shift per four scales; byte by byte each of the 16 would take its own
    let [first, second, upper] = unroll!(at in [0, 4, 8] => u32::from_le_bytes(*field(packed, at)));
    let words = [
        first & 0x0f0f_0f0f | upper << 4 & 0x3030_3030,
        second & 0x0f0f_0f0f | upper << 2 & 0x3030_3030,
        first >> 4 & 0x0f0f_0f0f | upper & 0x3030_3030,
        second >> 4 & 0x0f0f_0f0f | upper >> 2 & 0x3030_3030,
    ];
    let mut scales = [0; 16];
    for (scales, word) in scales.as_chunks_mut().0.iter_mut().zip(words) {
        *scales = word.to_le_bytes();
    }
    scales
}

#[inline(always)]
fn q3_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<110>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let scales = unpack_scales(field(block, 96));
        // only 16 of the 32 bytes matter: both halves are the same
        let scales = simd.sub_u8(simd.concat_u8x16(&scales, &scales), simd.splat_u8(32));
        let scales = batch::scale_i8(simd, from_f16(*field(block, 108)), scales);
        // the check reads the array, the loop below an opaque slice, from which each scale is broadcast by its load
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
    block: &[u8; 110],
    scales: &[f32],
    out: &mut [O::Stored; 256],
) {
    // `third` is shifted by 4 after the first half, so that both halves use the same shifts
    let mut third = simd.load_u8(field(block, 0));
    for ((half, out), scales) in out
        .as_chunks_mut::<128>()
        .0
        .iter_mut()
        .enumerate()
        .zip(scales.as_chunks::<8>().0)
    {
        let qs = simd.load_u8(field(block, 32 + 32 * half));
        // (shift of qs, shifts of hmask): each moves a code's two low bits to bits 0 and 1, and its third bit to bit 2
        let shifts = [(0, 2, 0), (2, 1, 0), (4, 0, 0), (6, 0, 1)];
        for ((i, out), (shift, left, right)) in out
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .enumerate()
            .zip(shifts)
        {
            // the code is unsigned 0 to 7; subtracting 4 as a byte is exact, so no float subtraction is needed
            let low = simd.and(simd.shr_u16(qs, shift), simd.splat_u8(3));
            // the third bit is wanted at bit 2, and comes from bit 0 to 3: a shift in either direction, of which one is
            // by zero
            let third = simd.shr_u16(simd.shl_u16(third, left), right);
            let codes = simd.or(low, simd.and(third, simd.splat_u8(4)));
            let [first, second] = simd.i8_to_f32(simd.sub_u8(codes, simd.splat_u8(4)));
            let (first, second) = (
                simd.mul(simd.splat(scales[2 * i]), first),
                simd.mul(simd.splat(scales[2 * i + 1]), second),
            );
            O::store::<S, ASSUME_NORMAL>(simd, [first, second], out);
        }
        third = simd.shr_u16(third, 4);
    }
}
