//! The common part of Q4_K and Q5_K: eight groups of 32 with a scale and a minimum of 6 bits, and codes from 0 on.

use super::affine::{self, AffineTrials};
use super::lanes::{
    EncodedColumns, Lanes, MAX_LEN, join, nearest, nearest_within, sum, sum_squares, weigh,
};
use super::positive;
use crate::simd::Simd;

/// Writes `d`, `dmin` and the packed scales, the first 16 bytes of a block, and returns the codes.
#[inline(always)]
pub(super) fn encode<S: Simd>(
    simd: S,
    blocks: &Lanes<'_, S>,
    unweighted: AffineTrials,
    out: &mut EncodedColumns,
) -> [[u8; 16]; MAX_LEN] {
    let zero = simd.splat(0.0);
    let (groups, _) = blocks.x.as_chunks::<32>();
    let (mut scales, mut minima, mut sums) = ([zero; 8], [zero; 8], [zero; 8]);
    let mut found = [[[0; 16]; 32]; 8];
    let max = unweighted.max;
    if let Some(importance) = blocks.importance {
        let square = simd.mul(simd.splat(2.0), sum_squares(simd, blocks.x));
        let square = simd.div(square, simd.splat(256.0));
        let (importance, _) = importance.as_chunks::<32>();
        for (g, (x, importance)) in groups.iter().zip(importance).enumerate() {
            let weights = weigh(simd, x, importance, square);
            sums[g] = sum(simd, &weights);
            let fit = affine::search(simd, x, &weights, AffineTrials::weighted(max));
            (scales[g], minima[g]) = (fit.scale, fit.minimum);
            for (found, x) in found[g].iter_mut().zip(x) {
                *found = simd.low_bytes(fit.code(simd, *x));
            }
        }
    } else {
        for (g, x) in groups.iter().enumerate() {
            let mean = simd.div(sum_squares(simd, x), simd.splat(32.0));
            let mean = simd.sqrt(mean);
            let mut weights = *x;
            for weight in &mut weights {
                *weight = simd.add(mean, simd.abs(*weight));
            }
            let fit = affine::search(simd, x, &weights, unweighted);
            (scales[g], minima[g]) = (fit.scale, fit.minimum);
            for (found, x) in found[g].iter_mut().zip(x) {
                *found = simd.low_bytes(fit.code(simd, *x));
            }
        }
    }
    let ((d, scales), (dmin, minima)) = if blocks.importance.is_some() {
        (
            positive::search(simd, &scales, &sums, 63),
            positive::search(simd, &minima, &sums, 63),
        )
    } else {
        (by_greatest(simd, &scales), by_greatest(simd, &minima))
    };
    let (d, dmin) = (out.put_f16(simd, 0, d), out.put_f16(simd, 2, dmin));
    pack(simd, &scales, &minima, out);
    let mut codes = [[0; 16]; MAX_LEN];
    for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<32>().0).enumerate() {
        let scale = simd.mul(d, simd.ints_to_f32(scales[g]));
        let minimum = simd.mul(dmin, simd.ints_to_f32(minima[g]));
        let is_zero = super::lanes::is_zero(simd, scale);
        for (i, (x, code)) in x.iter().zip(codes).enumerate() {
            let again = simd.div(simd.add(*x, minimum), scale);
            *code = simd.low_bytes(nearest_within(simd, again, 0, max));
            keep(simd, is_zero, found[g][i], code);
        }
    }
    codes
}

/// Keeps the codes of the search in lanes whose scale is zero.
#[inline(always)]
pub(super) fn keep<S: Simd>(simd: S, is_zero: S::Mask, found: [u8; 16], code: &mut [u8; 16]) {
    let lanes = simd.mask_bits(is_zero);
    if lanes != 0 {
        for (lane, (found, code)) in found.iter().zip(code).enumerate() {
            if lanes >> lane & 1 != 0 {
                *code = *found;
            }
        }
    }
}

/// Codes of 6 bits in proportion to the greatest number.
#[inline(always)]
fn by_greatest<S: Simd>(simd: S, x: &[S::Floats; 8]) -> (S::Floats, [S::Ints; 8]) {
    let zero = simd.splat(0.0);
    let mut max = zero;
    for x in x {
        max = simd.select(simd.lt(max, *x), *x, max);
    }
    let inverse = simd.div(simd.splat(63.0), max);
    let inverse = simd.select(simd.lt(zero, max), inverse, zero);
    let mut codes = [simd.splat_int(0); 8];
    for (code, x) in codes.iter_mut().zip(x) {
        let byte = simd.and_ints(nearest(simd, simd.mul(inverse, *x)), simd.splat_int(255));
        *code = simd.min_ints(byte, simd.splat_int(63));
    }
    (simd.div(max, simd.splat(63.0)), codes)
}

/// Packs the scales and minima in 12 bytes: see `block/q4_k.rs`.
#[inline(always)]
fn pack<S: Simd>(simd: S, scales: &[S::Ints; 8], minima: &[S::Ints; 8], out: &mut EncodedColumns) {
    for j in 0..4 {
        let (upper, nibble) = (simd.splat_int(0x30), simd.splat_int(15));
        let [scale, minimum] = [scales[j + 4], minima[j + 4]];
        let of_scale = simd.shl_ints(simd.and_ints(scale, upper), 2);
        let of_minimum = simd.shl_ints(simd.and_ints(minimum, upper), 2);
        out.put(simd, 4 + j, simd.or_ints(scales[j], of_scale));
        out.put(simd, 8 + j, simd.or_ints(minima[j], of_minimum));
        let low = join(simd, simd.and_ints(scale, nibble), minimum, 4);
        out.put(simd, 12 + j, low);
    }
}
