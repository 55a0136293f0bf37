//! Encoder of Q6_K (`quantize_row_q6_K_ref`, `quantize_row_q6_K_impl`); the layout is in `block/q6_k.rs`.

use super::BlockEncoder;
use super::k_affine::keep;
use super::lanes::{
    EPS, EncodedColumns, Lanes, MAX_LEN, as_i8, greatest, is_zero, nearest, nearest_within, squares,
};
use super::symmetric;
use crate::simd::Simd;

pub(super) struct Q6K;

impl BlockEncoder for Q6K {
    const LEN: usize = 256;
    const BYTES: usize = 210;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let (groups, _) = blocks.x.as_chunks::<16>();
        let mut scales = [simd.splat(0.0); 16];
        let mut found = [[[0; 16]; 16]; 16];
        for (g, x) in groups.iter().enumerate() {
            let weights = match blocks.importance {
                Some(importance) => importance.as_chunks::<16>().0[g],
                None => squares(simd, x),
            };
            let fit = symmetric::search(simd, x, &weights, 32);
            scales[g] = fit.scale;
            for (found, x) in found[g].iter_mut().zip(x) {
                *found = simd.low_bytes(fit.code(simd, *x));
            }
        }
        let [max, magnitude] = greatest(simd, &scales);
        let is_nothing = simd.lt(magnitude, simd.splat(EPS));
        let inverse = simd.div(simd.splat(-128.0), max);
        let d = simd.div(simd.splat(1.0), inverse);
        let d = simd.select(is_nothing, simd.splat(0.0), d);
        let d = out.put_f16(simd, 208, d);
        let mut codes = [[0; 16]; MAX_LEN];
        for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<16>().0).enumerate() {
            let code = nearest(simd, simd.mul(inverse, scales[g]));
            let code = as_i8(simd, simd.min_ints(code, simd.splat_int(127)));
            let code = simd.select_ints(is_nothing, simd.splat_int(0), code);
            out.put(simd, 192 + g, code);
            let scale = simd.mul(d, simd.ints_to_f32(code));
            let is_zero = is_zero(simd, scale);
            for (i, (x, code)) in x.iter().zip(codes).enumerate() {
                let again = nearest_within(simd, simd.div(*x, scale), -32, 31);
                *code = simd.low_bytes(simd.add_ints(again, simd.splat_int(32)));
                keep(simd, is_zero, found[g][i], code);
            }
        }
        for code in &mut codes {
            keep(simd, is_nothing, [0; 16], code);
        }
        for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
            for i in 0..32 {
                for lane in 0..16 {
                    let [a, b, c, d] = [
                        codes[i][lane],
                        codes[i + 32][lane],
                        codes[i + 64][lane],
                        codes[i + 96][lane],
                    ];
                    out.bytes[64 * half + i][lane] = a & 15 | c << 4;
                    out.bytes[64 * half + 32 + i][lane] = b & 15 | d << 4;
                    out.bytes[128 + 32 * half + i][lane] =
                        a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6;
                }
            }
        }
    }
}
