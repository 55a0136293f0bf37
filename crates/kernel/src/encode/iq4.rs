//! IQ4_NL and IQ4_XS: codes of sixteen values that are not evenly spaced (`quantize_row_iq4_nl_impl`).

use crate::codebook::IQ4;

use super::search::{EPS, greatest, nearest};
use super::{half, squares};

/// The code of the nearest value; of two that are equally near the greater one (`best_index_int8`).
fn code(x: f32) -> u8 {
    if x <= IQ4[0] {
        return 0;
    }
    if x >= IQ4[15] {
        return 15;
    }
    let (mut low, mut high) = (0, 15);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if x < IQ4[middle] {
            high = middle;
        } else {
            low = middle;
        }
    }
    (if x - IQ4[high - 1] < IQ4[high] - x {
        high - 1
    } else {
        high
    }) as u8
}

/// The scale of 32 values.
fn scale(x: &[f32], weights: &[f32; 32]) -> f32 {
    let (max, amax) = greatest(x);
    if amax < EPS {
        return 0.0;
    }
    let sums = |id: f32| {
        let (mut sumqx, mut sumq2) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(weights) {
            let q = IQ4[usize::from(code(id * x))];
            sumqx += w * q * x;
            sumq2 += w * q * q;
        }
        (sumqx, sumq2)
    };
    let (sumqx, sumq2) = sums(1.0 / (-max / IQ4[0]));
    // values that do not matter have no weights
    let mut d = if sumq2 > 0.0 { sumqx / sumq2 } else { 0.0 };
    let mut best = d * sumqx;
    for step in -7..=7 {
        let (sumqx, sumq2) = sums((step as f32 + IQ4[0]) / max);
        if sumq2 > 0.0 && sumqx * sumqx > best * sumq2 {
            d = sumqx / sumq2;
            best = d * sumqx;
        }
    }
    d
}

fn weights(x: &[f32], importance: Option<&[f32]>, sigma: f32) -> [f32; 32] {
    let mut weights = [0.0; 32];
    for (i, (weight, x)) in weights.iter_mut().zip(x).enumerate() {
        *weight = match importance {
            Some(importance) => importance[i] * (sigma + x * x).sqrt(),
            None => x * x,
        };
    }
    weights
}

/// One over a scale; 0 of 0.
fn inverse(d: f32) -> f32 {
    if d != 0.0 { 1.0 / d } else { 0.0 }
}

fn pack(x: &[f32], id: f32, out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = code(id * x[i]) | code(id * x[i + 16]) << 4;
    }
}

pub(super) fn iq4_nl(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (number, (x, out)) in values
        .chunks_exact(32)
        .zip(out.chunks_exact_mut(18))
        .enumerate()
    {
        let sigma = squares(x) * (2.0 / 32.0);
        let importance = importance.map(|all| &all[32 * number..]);
        let d = scale(x, &weights(x, importance, sigma));
        out[..2].copy_from_slice(&half(d).0);
        pack(x, inverse(d), &mut out[2..]);
    }
    true
}

pub(super) fn iq4_xs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(136))
        .enumerate()
    {
        let sigma = squares(x) * (2.0 / 256.0);
        let mut scales = [0.0; 8];
        for (group, (scale_of, x)) in scales.iter_mut().zip(x.chunks_exact(32)).enumerate() {
            let importance = importance.map(|all| &all[256 * number + 32 * group..]);
            *scale_of = scale(x, &weights(x, importance, sigma));
        }
        let d = -greatest(&scales).0 / 32.0;
        let id = inverse(d);
        out[..2].copy_from_slice(&half(d).0);
        let mut high = 0_u16;
        for (group, x) in x.chunks_exact(32).enumerate() {
            let step = nearest(id * scales[group]).clamp(-32, 31);
            // by the scale itself, not by its F16
            pack(
                x,
                inverse(d * step as f32),
                &mut out[8 + 16 * group..][..16],
            );
            let bits = (step + 32) as u16;
            out[4 + group / 2] |= ((bits & 15) as u8) << (4 * (group % 2));
            high |= (bits >> 4) << (2 * group);
        }
        out[2..4].copy_from_slice(&high.to_le_bytes());
    }
    true
}
