//! Scales of codes around zero: `make_qx_quants` and `make_q3_quants`.

use super::lanes::{EPS, greatest, is_zero, nearest_within, squares};
use crate::simd::Simd;

/// A scale, and what gives the codes of the search.
pub(super) struct Symmetric<S: Simd> {
    pub(super) scale: S::Floats,
    /// Code = element × this.
    inverse: S::Floats,
    is_nothing: S::Mask,
    limit: i32,
}

impl<S: Simd> Symmetric<S> {
    /// The code of an element, from 0 to `2 * limit - 1`; 0 in a group without a magnitude.
    #[inline(always)]
    pub(super) fn code(&self, simd: S, x: S::Floats) -> S::Ints {
        let code = code(simd, simd.mul(self.inverse, x), self.limit);
        let code = simd.add_ints(code, simd.splat_int(self.limit));
        simd.select_ints(self.is_nothing, simd.splat_int(0), code)
    }
}

#[inline(always)]
fn code<S: Simd>(simd: S, x: S::Floats, limit: i32) -> S::Ints {
    nearest_within(simd, x, -limit, limit - 1)
}

/// Searches a scale among 19, by weighted squares (`make_qx_quants` of type 1). Codes are `-limit` to `limit - 1`.
#[inline(always)]
pub(super) fn search<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    weights: &[S::Floats; N],
    limit: i32,
) -> Symmetric<S> {
    let zero = simd.splat(0.0);
    let [max, magnitude] = greatest(simd, x);
    let mut products = *weights;
    for (product, x) in products.iter_mut().zip(x) {
        *product = simd.mul(*product, *x);
    }
    let (mut scale, mut best, mut inverse) = (zero, zero, zero);
    for step in [
        0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9,
    ] {
        // the first trial is made with the plain limit, whose sum with zero is the same
        let numerator = -(limit as f32 + 0.1 * step as f32);
        let tried = simd.div(simd.splat(numerator), max);
        let (mut with_x, mut with_code) = (zero, zero);
        for i in 0..N {
            let code = simd.ints_to_f32(code(simd, simd.mul(tried, x[i]), limit));
            with_x = simd.add(with_x, simd.mul(products[i], code));
            with_code = simd.add(with_code, simd.mul(simd.mul(weights[i], code), code));
        }
        let ratio = simd.div(with_x, with_code);
        if step == 0 {
            scale = simd.select(is_zero(simd, with_code), zero, ratio);
            best = simd.mul(scale, with_x);
            inverse = tried;
        } else {
            let better = simd.lt(simd.mul(best, with_code), simd.mul(with_x, with_x));
            let better = simd.both(simd.lt(zero, with_code), better);
            scale = simd.select(better, ratio, scale);
            best = simd.select(better, simd.mul(ratio, with_x), best);
            inverse = simd.select(better, tried, inverse);
        }
    }
    let is_nothing = simd.lt(magnitude, simd.splat(EPS));
    Symmetric {
        scale: simd.select(is_nothing, zero, scale),
        inverse,
        is_nothing,
        limit,
    }
}

/// Searches a scale by changing one code at a time (`make_q3_quants`). The codes are returned as [`Symmetric::code`] gives
/// them.
#[inline(always)]
pub(super) fn descend<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    limit: i32,
) -> (S::Floats, [S::Ints; N]) {
    let zero = simd.splat(0.0);
    let [max, magnitude] = greatest(simd, x);
    let inverse = simd.div(simd.splat(-limit as f32), max);
    let weights = squares(simd, x);
    let mut codes = [zero; N];
    let (mut with_x, mut with_code) = (zero, zero);
    for i in 0..N {
        let code = simd.ints_to_f32(code(simd, simd.mul(inverse, x[i]), limit));
        codes[i] = code;
        with_x = simd.add(with_x, simd.mul(simd.mul(weights[i], x[i]), code));
        with_code = simd.add(with_code, simd.mul(simd.mul(weights[i], code), code));
    }
    for _ in 0..5 {
        let mut changed = 0;
        for i in 0..N {
            let (weight, old) = (weights[i], codes[i]);
            let product = simd.mul(weight, x[i]);
            let rest_x = simd.sub(with_x, simd.mul(product, old));
            let rest_code = simd.sub(with_code, simd.mul(simd.mul(weight, old), old));
            let new = simd.div(simd.mul(x[i], rest_code), rest_x);
            let new = simd.ints_to_f32(code(simd, new, limit));
            let new_x = simd.add(rest_x, simd.mul(product, new));
            let new_code = simd.add(rest_code, simd.mul(simd.mul(weight, new), new));
            // a code that stays is not taken again: its sums would be rounded anew
            let same = simd.both(simd.le(new, old), simd.le(old, new));
            let better = simd.lt(
                simd.mul(simd.mul(with_x, with_x), new_code),
                simd.mul(simd.mul(new_x, new_x), with_code),
            );
            let better = simd.both(better, simd.lt(zero, new_code));
            let better = simd.both(better, simd.lt(zero, rest_x));
            let taken = simd.select(better, new, old);
            let taken = simd.select(same, old, taken);
            let differs = !simd.mask_bits(same) & simd.mask_bits(better);
            with_x = simd.select(same, with_x, simd.select(better, new_x, with_x));
            with_code = simd.select(same, with_code, simd.select(better, new_code, with_code));
            codes[i] = taken;
            changed |= differs;
        }
        // a lane without changes does not change in another round either
        if changed == 0 {
            break;
        }
    }
    let is_nothing = simd.lt(magnitude, simd.splat(EPS));
    let scale = simd.select(simd.lt(zero, with_code), simd.div(with_x, with_code), zero);
    let mut found = [simd.splat_int(0); N];
    for (found, code) in found.iter_mut().zip(codes) {
        let code = simd.add_ints(simd.truncate(code), simd.splat_int(limit));
        *found = simd.select_ints(is_nothing, simd.splat_int(0), code);
    }
    (simd.select(is_nothing, zero, scale), found)
}
