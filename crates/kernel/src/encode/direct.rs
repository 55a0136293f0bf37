//! Types without a search: Q8_0, Q1_0, Q2_0, TQ1_0, TQ2_0. Importance has no effect on them.

use super::half;
use super::search::{greatest, truncated};

/// One over a scale; 0 of 0.
fn inverse(d: f32) -> f32 {
    if d != 0.0 { 1.0 / d } else { 0.0 }
}

pub(super) fn q8_0(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(32).zip(out.chunks_exact_mut(34)) {
        let (_, amax) = greatest(x);
        let d = amax / 127.0;
        let id = inverse(d);
        out[..2].copy_from_slice(&half(d).0);
        for (x, out) in x.iter().zip(&mut out[2..]) {
            // half away from zero
            *out = truncated((x * id).round()) as u8;
        }
    }
    true
}

pub(super) fn q1_0(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(128).zip(out.chunks_exact_mut(18)) {
        let sum = x.iter().fold(0.0, |sum, x| sum + x.abs());
        out[..2].copy_from_slice(&half(sum / 128.0).0);
        for (i, &x) in x.iter().enumerate() {
            out[2 + i / 8] |= u8::from(x >= 0.0) << (i % 8);
        }
    }
    true
}

/// A value as −1, 0 or 1 times the greatest one, with 1 added. Half away from zero. A scale that is too small has no
/// finite inverse: the values are 0 then.
fn trit(x: f32, id: f32) -> u8 {
    (truncated((x * id).round()) as u8).wrapping_add(1) & 3
}

pub(super) fn q2_0(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(64).zip(out.chunks_exact_mut(18)) {
        let (_, d) = greatest(x);
        let id = inverse(d);
        out[..2].copy_from_slice(&half(d).0);
        for (i, &x) in x.iter().enumerate() {
            let code = truncated((x * id).round()).saturating_add(1).clamp(0, 3);
            out[2 + i / 4] |= (code as u8) << (2 * (i % 4));
        }
    }
    true
}

pub(super) fn tq2_0(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(256).zip(out.chunks_exact_mut(66)) {
        let (_, d) = greatest(x);
        let id = inverse(d);
        for (x, out) in x.chunks_exact(128).zip(out.chunks_exact_mut(32)) {
            for (i, &x) in x.iter().enumerate() {
                out[i % 32] |= trit(x, id) << (2 * (i / 32));
            }
        }
        out[64..].copy_from_slice(&half(d).0);
    }
    true
}

/// Five trits in base 3, as a fraction of a byte that is rounded up.
fn five(trits: impl Iterator<Item = u8>) -> u8 {
    let number = trits.fold(0_u16, |number, trit| 3 * number + u16::from(trit));
    (number * 256).div_ceil(243) as u8
}

pub(super) fn tq1_0(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(256).zip(out.chunks_exact_mut(54)) {
        let (_, d) = greatest(x);
        let id = inverse(d);
        for (i, out) in out[..52].iter_mut().enumerate() {
            // 32 bytes of trits that are 32 apart, 16 of trits that are 16 apart, four of trits that are four apart
            *out = match i {
                0..32 => five((0..5).map(|n| trit(x[i + 32 * n], id))),
                32..48 => five((0..5).map(|n| trit(x[160 + (i - 32) + 16 * n], id))),
                _ => {
                    let four = (0..4).map(|n| trit(x[240 + (i - 48) + 4 * n], id));
                    five(four.chain([0]))
                }
            };
        }
        out[52..].copy_from_slice(&half(d).0);
    }
    true
}
