//! Encoder of Q2_K (`quantize_row_q2_K_ref`, `quantize_row_q2_K_impl`); the layout is in `block/q2_k.rs`.

use super::BlockEncoder;
use super::affine::{self, AffineTrials};
use super::k_affine::keep;
use super::lanes::{
    EncodedColumns, Lanes, MAX_LEN, is_zero, join, nearest, nearest_within, sum, sum_squares, weigh,
};
use super::positive;
use crate::simd::Simd;

pub(super) struct Q2K;

impl BlockEncoder for Q2K {
    const LEN: usize = 256;
    const BYTES: usize = 84;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let zero = simd.splat(0.0);
        let (groups, _) = blocks.x.as_chunks::<16>();
        let (mut scales, mut minima, mut sums) = ([zero; 16], [zero; 16], [zero; 16]);
        let mut found = [[[0; 16]; 16]; 16];
        if let Some(importance) = blocks.importance {
            let square = simd.div(sum_squares(simd, blocks.x), simd.splat(256.0));
            let (importance, _) = importance.as_chunks::<16>();
            for (g, (x, importance)) in groups.iter().zip(importance).enumerate() {
                let weights = weigh(simd, x, importance, square);
                sums[g] = sum(simd, &weights);
                let fit = affine::search(simd, x, &weights, AffineTrials::weighted(3));
                (scales[g], minima[g]) = (fit.scale, fit.minimum);
                for (found, x) in found[g].iter_mut().zip(x) {
                    *found = simd.low_bytes(fit.code(simd, *x));
                }
            }
        } else {
            let unweighted = AffineTrials {
                max: 3,
                first: -0.5,
                step: 0.1,
                last: 15,
                by_magnitude: true,
            };
            for (g, x) in groups.iter().enumerate() {
                let mut weights = *x;
                for weight in &mut weights {
                    *weight = simd.abs(*weight);
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
                positive::search(simd, &scales, &sums, 15),
                positive::search(simd, &minima, &sums, 15),
            )
        } else {
            (by_greatest(simd, &scales), by_greatest(simd, &minima))
        };
        let (d, dmin) = (out.put_f16(simd, 80, d), out.put_f16(simd, 82, dmin));
        let mut codes = [[0; 16]; MAX_LEN];
        let nibble = simd.splat_int(15);
        for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<16>().0).enumerate() {
            // both in one byte, from which they are read again
            let packed = join(simd, scales[g], minima[g], 4);
            let packed = simd.and_ints(packed, simd.splat_int(255));
            out.put(simd, g, packed);
            let scale = simd.mul(d, simd.ints_to_f32(simd.and_ints(packed, nibble)));
            let minimum = simd.mul(dmin, simd.ints_to_f32(simd.shr_ints(packed, 4)));
            let is_zero = is_zero(simd, scale);
            for (i, (x, code)) in x.iter().zip(codes).enumerate() {
                let again = simd.div(simd.add(*x, minimum), scale);
                *code = simd.low_bytes(nearest_within(simd, again, 0, 3));
                keep(simd, is_zero, found[g][i], code);
            }
        }
        put_pairs(&codes, 16, out);
    }
}

/// Packs codes of 2 bits: each 32 bytes hold 128 codes, 32 apart.
#[inline(always)]
pub(super) fn put_pairs(codes: &[[u8; 16]; MAX_LEN], at: usize, out: &mut EncodedColumns) {
    for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
        for i in 0..32 {
            for lane in 0..16 {
                out.bytes[at + 32 * half + i][lane] = codes[i][lane]
                    | codes[i + 32][lane] << 2
                    | codes[i + 64][lane] << 4
                    | codes[i + 96][lane] << 6;
            }
        }
    }
}

/// Codes of 4 bits in proportion to the greatest number.
#[inline(always)]
fn by_greatest<S: Simd>(simd: S, x: &[S::Floats; 16]) -> (S::Floats, [S::Ints; 16]) {
    let zero = simd.splat(0.0);
    let mut max = zero;
    for x in x {
        max = simd.select(simd.lt(max, *x), *x, max);
    }
    let has_any = simd.lt(zero, max);
    let inverse = simd.div(simd.splat(15.0), max);
    let mut codes = [simd.splat_int(0); 16];
    for (code, x) in codes.iter_mut().zip(x) {
        let byte = simd.and_ints(nearest(simd, simd.mul(inverse, *x)), simd.splat_int(255));
        *code = simd.select_ints(has_any, byte, simd.splat_int(0));
    }
    let d = simd.div(max, simd.splat(15.0));
    (simd.select(has_any, d, zero), codes)
}
