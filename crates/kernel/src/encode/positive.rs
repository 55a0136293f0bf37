//! A scale for numbers that are not negative: `make_qp_quants`.

use super::lanes::{EPS, nearest};
use crate::simd::Simd;

/// Searches a scale and codes from 0 to `limit`, by weighted squares.
#[inline(always)]
pub(super) fn search<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    weights: &[S::Floats; N],
    limit: i32,
) -> (S::Floats, [S::Ints; N]) {
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    let mut max = zero;
    for x in x {
        max = simd.select(simd.lt(*x, max), max, *x);
    }
    let is_nothing = simd.lt(max, simd.splat(EPS));
    let (mut best, mut inverse) = (zero, zero);
    for step in [0, -4, -3, -2, -1, 1, 2, 3, 4] {
        let tried = simd.div(simd.splat(0.1 * step as f32 + limit as f32), max);
        let scale = simd.div(one, tried);
        let mut error = zero;
        for i in 0..N {
            let code = nearest(simd, simd.mul(tried, x[i]));
            // the first codes are kept as bytes, the others are limited
            let code = if step == 0 {
                as_byte(simd, code)
            } else {
                simd.min_ints(code, simd.splat_int(limit))
            };
            let difference = simd.sub(x[i], simd.mul(scale, simd.ints_to_f32(code)));
            let square = simd.mul(simd.mul(weights[i], difference), difference);
            error = simd.add(error, square);
        }
        if step == 0 {
            (best, inverse) = (error, tried);
        } else {
            let better = simd.lt(error, best);
            best = simd.select(better, error, best);
            inverse = simd.select(better, tried, inverse);
        }
    }
    let mut codes = [simd.splat_int(0); N];
    let (mut with_x, mut with_code) = (zero, zero);
    for i in 0..N {
        let code = nearest(simd, simd.mul(inverse, x[i]));
        let code = simd.min_ints(code, simd.splat_int(limit));
        codes[i] = as_byte(simd, code);
        let code = simd.ints_to_f32(code);
        with_x = simd.add(with_x, simd.mul(simd.mul(weights[i], x[i]), code));
        with_code = simd.add(with_code, simd.mul(simd.mul(weights[i], code), code));
    }
    for _ in 0..5 {
        let mut changed = 0;
        for i in 0..N {
            let weight = weights[i];
            let product = simd.mul(weight, x[i]);
            let old = simd.ints_to_f32(codes[i]);
            let rest_x = simd.sub(with_x, simd.mul(product, old));
            let rest_code = simd.sub(with_code, simd.mul(simd.mul(weight, old), old));
            let code = nearest(simd, simd.div(simd.mul(x[i], rest_code), rest_x));
            let code = simd.min_ints(code, simd.splat_int(limit));
            let new = simd.ints_to_f32(code);
            let new_x = simd.add(rest_x, simd.mul(product, new));
            let new_code = simd.add(rest_code, simd.mul(simd.mul(weight, new), new));
            let same = simd.eq_ints(code, codes[i]);
            let better = simd.lt(
                simd.mul(simd.mul(with_x, with_x), new_code),
                simd.mul(simd.mul(new_x, new_x), with_code),
            );
            let better = simd.both(better, simd.lt(zero, rest_x));
            let better = simd.both(better, simd.lt(zero, rest_code));
            changed |= !simd.mask_bits(same) & simd.mask_bits(better);
            with_x = simd.select(same, with_x, simd.select(better, new_x, with_x));
            with_code = simd.select(same, with_code, simd.select(better, new_code, with_code));
            let taken = simd.select_ints(better, as_byte(simd, code), codes[i]);
            codes[i] = simd.select_ints(same, codes[i], taken);
        }
        if changed == 0 {
            break;
        }
    }
    for code in &mut codes {
        *code = simd.select_ints(is_nothing, simd.splat_int(0), *code);
    }
    let scale = simd.select(simd.lt(zero, with_code), simd.div(with_x, with_code), zero);
    (simd.select(is_nothing, zero, scale), codes)
}

#[inline(always)]
fn as_byte<S: Simd>(simd: S, code: S::Ints) -> S::Ints {
    simd.and_ints(code, simd.splat_int(255))
}
