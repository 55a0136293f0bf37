//! Encoder of Q3_K (`quantize_row_q3_K_ref`, `quantize_row_q3_K_impl`); the layout is in `block/q3_k.rs`.

use super::BlockEncoder;
use super::k_affine::keep;
use super::lanes::{
    EncodedColumns, Lanes, MAX_LEN, as_i8, greatest, is_zero, nearest, nearest_within, sum,
    sum_squares, weigh,
};
use super::q2_k::put_pairs;
use super::symmetric;
use crate::simd::Simd;

pub(super) struct Q3K;

impl BlockEncoder for Q3K {
    const LEN: usize = 256;
    const BYTES: usize = 110;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let zero = simd.splat(0.0);
        let (groups, _) = blocks.x.as_chunks::<16>();
        let (mut scales, mut sums) = ([zero; 16], [zero; 16]);
        let mut found = [[[0; 16]; 16]; 16];
        let (d, scales) = if let Some(importance) = blocks.importance {
            let square = simd.mul(simd.splat(2.0), sum_squares(simd, blocks.x));
            let square = simd.div(square, simd.splat(256.0));
            let (importance, _) = importance.as_chunks::<16>();
            for (g, (x, importance)) in groups.iter().zip(importance).enumerate() {
                let weights = weigh(simd, x, importance, square);
                sums[g] = sum(simd, &weights);
                let fit = symmetric::search(simd, x, &weights, 4);
                scales[g] = fit.scale;
                for (found, x) in found[g].iter_mut().zip(x) {
                    *found = simd.low_bytes(fit.code(simd, *x));
                }
            }
            let fit = symmetric::search(simd, &scales, &sums, 32);
            let mut codes = [simd.splat_int(0); 16];
            for (code, scale) in codes.iter_mut().zip(&scales) {
                *code = fit.code(simd, *scale);
            }
            (fit.scale, codes)
        } else {
            for (g, x) in groups.iter().enumerate() {
                let (scale, codes) = symmetric::descend(simd, x, 4);
                scales[g] = scale;
                for (found, code) in found[g].iter_mut().zip(codes) {
                    *found = simd.low_bytes(code);
                }
            }
            by_greatest(simd, &scales)
        };
        let d = out.put_f16(simd, 108, d);
        let mut codes = [[0; 16]; MAX_LEN];
        for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<16>().0).enumerate() {
            let code = simd.sub_ints(scales[g], simd.splat_int(32));
            let scale = simd.mul(d, simd.ints_to_f32(code));
            let is_zero = is_zero(simd, scale);
            for (i, (x, code)) in x.iter().zip(codes).enumerate() {
                let again = nearest_within(simd, simd.div(*x, scale), -4, 3);
                *code = simd.low_bytes(simd.add_ints(again, simd.splat_int(4)));
                keep(simd, is_zero, found[g][i], code);
            }
            let packed = simd.low_bytes(scales[g]);
            for lane in 0..16 {
                out.bytes[96 + g % 8][lane] |= (packed[lane] & 15) << (g / 8 * 4);
                out.bytes[104 + g % 4][lane] |= packed[lane] >> 4 << (g / 4 * 2);
            }
        }
        for (i, code) in codes.iter_mut().enumerate() {
            for lane in 0..16 {
                out.bytes[i % 32][lane] |= code[lane] >> 2 << (i / 32);
                code[lane] &= 3;
            }
        }
        put_pairs(&codes, 32, out);
    }
}

/// Codes of 6 bits, from 0, in proportion to the scale of greatest magnitude; all 0 if there is none.
#[inline(always)]
fn by_greatest<S: Simd>(simd: S, scales: &[S::Floats; 16]) -> (S::Floats, [S::Ints; 16]) {
    let [max, _] = greatest(simd, scales);
    let is_nothing = is_zero(simd, max);
    let inverse = simd.div(simd.splat(-32.0), max);
    let mut codes = [simd.splat_int(0); 16];
    for (code, scale) in codes.iter_mut().zip(scales) {
        let byte = as_i8(simd, nearest(simd, simd.mul(inverse, *scale)));
        let limited = simd.min_ints(byte, simd.splat_int(31));
        let limited = simd.max_ints(limited, simd.splat_int(-32));
        let stored = simd.add_ints(limited, simd.splat_int(32));
        *code = simd.select_ints(is_nothing, simd.splat_int(0), stored);
    }
    let d = simd.div(simd.splat(1.0), inverse);
    (simd.select(is_nothing, simd.splat(0.0), d), codes)
}
