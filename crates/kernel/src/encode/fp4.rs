//! MXFP4 and NVFP4: codes of FP4, each the nearest of sixteen values, the first of equals.

use crate::codebook::{FP4_DOUBLED, e8m0_half};

use super::search::greatest;

/// The code whose value is nearest.
fn code(x: f32, d: f32) -> u8 {
    let mut best = (0, (FP4_DOUBLED[0] * d - x).abs());
    for (code, value) in FP4_DOUBLED.iter().enumerate().skip(1) {
        let error = (value * d - x).abs();
        if error < best.1 {
            best = (code, error);
        }
    }
    best.0 as u8
}

pub(super) fn mxfp4(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(32).zip(out.chunks_exact_mut(17)) {
        let (_, amax) = greatest(x);
        // the logarithm is rounded to F32, so that values just below a power of two have its exponent
        let exponent = match amax > 0.0 {
            true => (f64::from(amax).log2() as f32).floor() as i32 - 2 + 127,
            false => 0,
        };
        out[0] = exponent as u8;
        let d = e8m0_half(out[0]);
        for (i, out) in out[1..].iter_mut().enumerate() {
            *out = code(x[i], d) | code(x[i + 16], d) << 4;
        }
    }
    true
}

/// The scale of a group as UE4M3, and its half, by which codes are doubled.
fn ue4m3(x: f32) -> (u8, f32) {
    if x <= 0.0 {
        return (0, 0.0);
    }
    let x = x.min(448.0);
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    let mantissa = bits >> 20 & 7;
    let byte = if exponent <= 0 {
        // subnormal: multiples of 2⁻⁹, whose greatest stays one
        ((x * 512.0 + 0.5) as i32).min(7) as u8
    } else {
        // the next bit alone decides, half up
        let rounded = ((exponent as u32) << 3 | mantissa) + (bits >> 19 & 1);
        // everything from 256 on is the greatest number
        (if rounded < 120 { rounded } else { 126 }) as u8
    };
    let (exponent, mantissa) = (i32::from(byte >> 3), f32::from(byte & 7));
    let value = match exponent {
        0 => mantissa * 2_f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2_f32.powi(exponent - 7),
    };
    (byte, value * 0.5)
}

pub(super) fn nvfp4(values: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, out) in values.chunks_exact(64).zip(out.chunks_exact_mut(36)) {
        for (group, x) in x.chunks_exact(16).enumerate() {
            let (_, amax) = greatest(x);
            let (byte, d) = ue4m3(amax / 6.0);
            out[group] = byte;
            for i in 0..8 {
                out[4 + 8 * group + i] = code(x[i], d) | code(x[i + 8], d) << 4;
            }
        }
    }
    true
}
