//! A scale and a minimum for a group: `make_qkx2_quants` and `make_qkx3_quants`, which differ in nothing for finite numbers.

use super::lanes::{extent, nearest_within, negate};
use crate::simd::Simd;

/// Which scales are tried, and how codes are judged.
#[derive(Clone, Copy)]
pub(super) struct AffineTrials {
    /// The greatest code.
    pub(super) max: i32,
    /// Trial `i` is made as if the greatest code were `max + first + step * i`.
    pub(super) first: f32,
    pub(super) step: f32,
    /// The number of the last trial.
    pub(super) last: i32,
    /// Errors count by their magnitude, not by their square.
    pub(super) by_magnitude: bool,
}

impl AffineTrials {
    /// The trials where there is an importance.
    pub(super) const fn weighted(max: i32) -> Self {
        Self {
            max,
            first: -0.9,
            step: 0.05,
            last: 36,
            by_magnitude: false,
        }
    }
}

/// Element = `scale * code - minimum`.
pub(super) struct Affine<S: Simd> {
    pub(super) scale: S::Floats,
    pub(super) minimum: S::Floats,
    /// Code = (element − this) × inverse.
    offset: S::Floats,
    inverse: S::Floats,
    is_flat: S::Mask,
    max: i32,
}

impl<S: Simd> Affine<S> {
    /// The code that the search gave an element.
    #[inline(always)]
    pub(super) fn code(&self, simd: S, x: S::Floats) -> S::Ints {
        let code = simd.mul(self.inverse, simd.sub(x, self.offset));
        let code = nearest_within(simd, code, 0, self.max);
        simd.select_ints(self.is_flat, simd.splat_int(0), code)
    }
}

/// Searches a scale and a minimum.
#[inline(always)]
pub(super) fn search<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    weights: &[S::Floats; N],
    trials: AffineTrials,
) -> Affine<S> {
    let zero = simd.splat(0.0);
    let limit = trials.max as f32;
    let [least, max] = extent(simd, x);
    let (mut sum_w, mut sum_x) = (weights[0], simd.mul(weights[0], x[0]));
    for i in 1..N {
        sum_w = simd.add(sum_w, weights[i]);
        sum_x = simd.add(sum_x, simd.mul(weights[i], x[i]));
    }
    let least = simd.select(simd.lt(zero, least), zero, least);
    let is_flat = simd.le(max, least);
    let mut min = least;
    let mut inverse = simd.div(simd.splat(limit), simd.sub(max, min));
    let mut offset = min;
    let mut scale = simd.div(simd.splat(1.0), inverse);
    let mut codes = [zero; N];
    for i in 0..N {
        let code = simd.mul(inverse, simd.sub(x[i], min));
        codes[i] = simd.ints_to_f32(nearest_within(simd, code, 0, trials.max));
    }
    let mut best = error(simd, x, weights, &codes, scale, min, trials.by_magnitude);
    for trial in 0..=trials.last {
        let numerator = trials.first + trials.step * trial as f32 + limit;
        let tried = simd.div(simd.splat(numerator), simd.sub(max, min));
        let (mut sum_l, mut sum_l2, mut sum_xl) = (zero, zero, zero);
        for i in 0..N {
            let code = simd.mul(tried, simd.sub(x[i], min));
            let code = simd.ints_to_f32(nearest_within(simd, code, 0, trials.max));
            codes[i] = code;
            let weighted = simd.mul(weights[i], code);
            sum_l = simd.add(sum_l, weighted);
            sum_l2 = simd.add(sum_l2, simd.mul(weighted, code));
            sum_xl = simd.add(sum_xl, simd.mul(weighted, x[i]));
        }
        let determinant = simd.sub(simd.mul(sum_w, sum_l2), simd.mul(sum_l, sum_l));
        let this_scale = simd.sub(simd.mul(sum_w, sum_xl), simd.mul(sum_x, sum_l));
        let this_scale = simd.div(this_scale, determinant);
        let this_min = simd.sub(simd.mul(sum_l2, sum_x), simd.mul(sum_l, sum_xl));
        let this_min = simd.div(this_min, determinant);
        let above = simd.lt(zero, this_min);
        let this_scale = simd.select(above, simd.div(sum_xl, sum_l2), this_scale);
        let this_min = simd.select(above, zero, this_min);
        let found = error(
            simd,
            x,
            weights,
            &codes,
            this_scale,
            this_min,
            trials.by_magnitude,
        );
        let better = simd.both(simd.lt(zero, determinant), simd.lt(found, best));
        // the next trials start from the new minimum
        inverse = simd.select(better, tried, inverse);
        offset = simd.select(better, min, offset);
        best = simd.select(better, found, best);
        scale = simd.select(better, this_scale, scale);
        min = simd.select(better, this_min, min);
    }
    Affine {
        scale: simd.select(is_flat, zero, scale),
        minimum: negate(simd, simd.select(is_flat, least, min)),
        offset,
        inverse,
        is_flat,
        max: trials.max,
    }
}

#[inline(always)]
fn error<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    weights: &[S::Floats; N],
    codes: &[S::Floats; N],
    scale: S::Floats,
    min: S::Floats,
    by_magnitude: bool,
) -> S::Floats {
    let mut sum = simd.splat(0.0);
    for i in 0..N {
        let difference = simd.sub(simd.add(simd.mul(scale, codes[i]), min), x[i]);
        let difference = if by_magnitude {
            simd.abs(difference)
        } else {
            simd.mul(difference, difference)
        };
        sum = simd.add(sum, simd.mul(weights[i], difference));
    }
    sum
}
