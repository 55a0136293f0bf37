//! Searches for scales: the one that leaves the least weighted error, among some around the first guess.
//!
//! Each is a function of `ggml-quants.c`; the names there are in the comments. Codes are integers whose products with floats are taken as
//! there, one after another.

/// A greatest value below this is taken as zero (`GROUP_MAX_EPS`).
pub(super) const EPS: f32 = 1e-15;

/// The integer nearest to a float, half to even, as its bits tell: beyond 22 bits they wrap.
#[inline(always)]
pub(super) fn nearest(x: f32) -> i32 {
    let bits = (x + 12_582_912.0).to_bits();
    (bits & 0x007f_ffff) as i32 - 0x0040_0000
}

/// A float as an integer, toward zero; what does not fit is the least one, as on x86.
#[inline(always)]
pub(super) fn truncated(x: f32) -> i32 {
    // the bounds are floats themselves
    if (-2_147_483_648.0..2_147_483_648.0).contains(&x) {
        x as i32
    } else {
        i32::MIN
    }
}

/// The value of the greatest magnitude, the first of equals, and the magnitude.
pub(super) fn greatest(x: &[f32]) -> (f32, f32) {
    let (mut max, mut amax) = (0.0, 0.0);
    for &x in x {
        if x.abs() > amax {
            (amax, max) = (x.abs(), x);
        }
    }
    (max, amax)
}

/// `make_qx_quants` with weights: symmetric codes from `-nmax` to `nmax - 1`, stored with `nmax` added. Returns the scale.
pub(super) fn symmetric(nmax: i32, x: &[f32], codes: &mut [u8], weights: &[f32]) -> f32 {
    let (max, amax) = greatest(x);
    if amax < EPS {
        codes.fill(0);
        return 0.0;
    }
    let sums = |iscale: f32| {
        let (mut sumlx, mut suml2) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(weights) {
            let l = nearest(iscale * x).clamp(-nmax, nmax - 1) as f32;
            sumlx += w * x * l;
            suml2 += w * l * l;
        }
        (sumlx, suml2)
    };
    let mut chosen = -(nmax as f32) / max;
    let (sumlx, suml2) = sums(chosen);
    let mut scale = if suml2 != 0.0 { sumlx / suml2 } else { 0.0 };
    let mut best = scale * sumlx;
    for step in (-9..=9).filter(|&step| step != 0) {
        let iscale = -(nmax as f32 + 0.1 * step as f32) / max;
        let (sumlx, suml2) = sums(iscale);
        if suml2 > 0.0 && sumlx * sumlx > best * suml2 {
            scale = sumlx / suml2;
            best = scale * sumlx;
            chosen = iscale;
        }
    }
    for (&x, code) in x.iter().zip(codes) {
        *code = (nmax + nearest(chosen * x).clamp(-nmax, nmax - 1)) as u8;
    }
    scale
}

/// `make_q3_quants`: codes from `-nmax` to `nmax - 1`, stored with `nmax` added, improved one at a time. Returns the scale.
pub(super) fn improved(nmax: i32, x: &[f32], codes: &mut [u8]) -> f32 {
    let (max, amax) = greatest(x);
    if amax < EPS {
        codes.fill(0);
        return 0.0;
    }
    let iscale = -(nmax as f32) / max;
    let mut own = [0_i32; 16];
    let (mut sumlx, mut suml2) = (0.0_f32, 0.0_f32);
    for (&x, own) in x.iter().zip(&mut own) {
        *own = nearest(iscale * x).clamp(-nmax, nmax - 1);
        let (l, w) = (*own as f32, x * x);
        sumlx += w * x * l;
        suml2 += w * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (&x, own) in x.iter().zip(&mut own) {
            let (l, w) = (*own as f32, x * x);
            let mut slx = sumlx - w * x * l;
            if slx > 0.0 {
                let mut sl2 = suml2 - w * l * l;
                let new = nearest(x * sl2 / slx).clamp(-nmax, nmax - 1);
                if new != *own {
                    let l = new as f32;
                    slx += w * x * l;
                    sl2 += w * l * l;
                    if sl2 > 0.0 && slx * slx * suml2 > sumlx * sumlx * sl2 {
                        *own = new;
                        (sumlx, suml2) = (slx, sl2);
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    for (own, code) in own.iter().zip(codes) {
        *code = (own + nmax) as u8;
    }
    if suml2 > 0.0 { sumlx / suml2 } else { 0.0 }
}

/// How [`with_minimum`] tries scales.
#[derive(Clone, Copy)]
pub(super) struct Trials {
    pub(super) first: f32,
    pub(super) step: f32,
    pub(super) steps: i32,
    /// Whether errors are counted by their magnitude, and not squared.
    pub(super) absolute: bool,
}

impl Trials {
    /// All types with weights (`make_qkx3_quants`).
    pub(super) const WEIGHTED: Self = Self {
        first: -0.9,
        step: 0.05,
        steps: 36,
        absolute: false,
    };
}

/// `make_qkx2_quants` and `make_qkx3_quants`: codes from 0 to `nmax` between a minimum and a maximum. Returns the scale and minus the
/// minimum.
pub(super) fn with_minimum(
    nmax: i32,
    x: &[f32],
    weights: &[f32],
    codes: &mut [u8],
    trials: Trials,
) -> (f32, f32) {
    let (mut min, mut max) = (x[0], x[0]);
    let mut sum_w = weights[0];
    let mut sum_x = sum_w * x[0];
    for (&x, &w) in x.iter().zip(weights).skip(1) {
        if x < min {
            min = x;
        }
        if x > max {
            max = x;
        }
        sum_w += w;
        sum_x += w * x;
    }
    if min > 0.0 {
        min = 0.0;
    }
    // never less: the minimum is at most the least value
    if max <= min {
        codes.fill(0);
        return (0.0, -min);
    }
    let error = |scale: f32, min: f32, codes: &[u8]| {
        let mut error = 0.0;
        for ((&x, &w), &l) in x.iter().zip(weights).zip(codes) {
            let diff = scale * f32::from(l) + min - x;
            error += w * if trials.absolute {
                diff.abs()
            } else {
                diff * diff
            };
        }
        error
    };
    let iscale = nmax as f32 / (max - min);
    let mut scale = 1.0 / iscale;
    for (&x, code) in x.iter().zip(&mut *codes) {
        *code = nearest(iscale * (x - min)).clamp(0, nmax) as u8;
    }
    let mut best = error(scale, min, codes);
    let mut tried = [0_u8; 32];
    let tried = &mut tried[..x.len()];
    for step in 0..=trials.steps {
        // by the minimum of the best so far, as in the reference
        let iscale = (trials.first + trials.step * step as f32 + nmax as f32) / (max - min);
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
        for ((&x, &w), code) in x.iter().zip(weights).zip(&mut *tried) {
            let code_of = nearest(iscale * (x - min)).clamp(0, nmax);
            *code = code_of as u8;
            let l = code_of as f32;
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let d = sum_w * sum_l2 - sum_l * sum_l;
        if d > 0.0 {
            let mut this_scale = (sum_w * sum_xl - sum_x * sum_l) / d;
            let mut this_min = (sum_l2 * sum_x - sum_l * sum_xl) / d;
            if this_min > 0.0 {
                this_min = 0.0;
                this_scale = sum_xl / sum_l2;
            }
            let error = error(this_scale, this_min, tried);
            if error < best {
                codes.copy_from_slice(tried);
                (best, scale, min) = (error, this_scale, this_min);
            }
        }
    }
    (scale, -min)
}

/// `make_qp_quants`: codes from 0 to `nmax` of values that are not negative. Returns the scale.
pub(super) fn positive(nmax: i32, x: &[f32], codes: &mut [u8], weights: &[f32]) -> f32 {
    let max = x
        .iter()
        .fold(0.0_f32, |max, &x| if max > x { max } else { x });
    if max < EPS {
        codes.fill(0);
        return 0.0;
    }
    let mut iscale = nmax as f32 / max;
    let scale = 1.0 / iscale;
    let mut best = 0.0;
    for ((&x, &w), code) in x.iter().zip(weights).zip(&mut *codes) {
        // a byte, also where a value is negative
        *code = nearest(iscale * x) as u8;
        let diff = x - scale * f32::from(*code);
        best += w * diff * diff;
    }
    for step in (-4..=4).filter(|&step| step != 0) {
        let tried = (0.1 * step as f32 + nmax as f32) / max;
        let scale = 1.0 / tried;
        let mut error = 0.0;
        for (&x, &w) in x.iter().zip(weights) {
            let l = nearest(tried * x).min(nmax) as f32;
            let diff = x - scale * l;
            error += w * diff * diff;
        }
        if error < best {
            (best, iscale) = (error, tried);
        }
    }
    let (mut sumlx, mut suml2) = (0.0_f32, 0.0_f32);
    for ((&x, &w), code) in x.iter().zip(weights).zip(&mut *codes) {
        let own = nearest(iscale * x).min(nmax);
        *code = own as u8;
        let l = own as f32;
        sumlx += w * x * l;
        suml2 += w * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for ((&x, &w), code) in x.iter().zip(weights).zip(&mut *codes) {
            let l = f32::from(*code);
            let mut slx = sumlx - w * x * l;
            let mut sl2 = suml2 - w * l * l;
            if slx > 0.0 && sl2 > 0.0 {
                let new = nearest(x * sl2 / slx).min(nmax);
                if new != i32::from(*code) {
                    let l = new as f32;
                    slx += w * x * l;
                    sl2 += w * l * l;
                    if slx * slx * suml2 > sumlx * sumlx * sl2 {
                        *code = new as u8;
                        (sumlx, suml2) = (slx, sl2);
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    if suml2 > 0.0 { sumlx / suml2 } else { 0.0 }
}
