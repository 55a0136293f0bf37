//! Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32; the layouts are with their decoders (`block/q4_0.rs` …).

use super::search::{Trials, greatest, symmetric, truncated, with_minimum};
use super::{half, squares};

/// The weights of the blocks of a row: importance, and the size of values.
fn weights(x: &[f32], importance: &[f32], row: f32) -> [f32; 32] {
    let mut weights = [0.0; 32];
    for ((weight, x), q) in weights.iter_mut().zip(x).zip(importance) {
        *weight = q * (row + x * x).sqrt();
    }
    weights
}

/// Calls `encode` for each block with its weights.
fn blocks(
    values: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
    bytes: usize,
    encode: impl Fn(&[f32], Option<&[f32; 32]>, &mut [u8]),
) -> bool {
    let row = importance.map(|_| squares(values) / values.len() as f32);
    for (number, (x, out)) in values
        .chunks_exact(32)
        .zip(out.chunks_exact_mut(bytes))
        .enumerate()
    {
        let own = importance.zip(row);
        let own = own.map(|(all, row)| weights(x, &all[32 * number..][..32], row));
        encode(x, own.as_ref(), out);
    }
    true
}

/// Codes of 4 bits: the first half of them low.
fn pack_nibbles(codes: &[u8; 32], out: &mut [u8]) {
    for (i, out) in out[..16].iter_mut().enumerate() {
        *out = codes[i] & 15 | (codes[i + 16] & 15) << 4;
    }
}

/// The fifth bits of codes.
fn pack_fifth(codes: &[u8; 32], out: &mut [u8]) {
    let bits = codes.iter().enumerate();
    let bits = bits.fold(0_u32, |bits, (i, code)| {
        bits | u32::from(code >> 4 & 1) << i
    });
    out[..4].copy_from_slice(&bits.to_le_bytes());
}

/// Symmetric codes around `zero`: without weights by the value of the greatest magnitude.
fn around(x: &[f32], weights: Option<&[f32; 32]>, zero: u8, codes: &mut [u8; 32]) -> f32 {
    if let Some(weights) = weights {
        return symmetric(zero.into(), x, codes, weights);
    }
    let (max, _) = greatest(x);
    let d = max / -f32::from(zero);
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    for (x, code) in x.iter().zip(codes) {
        // truncation toward zero, of what is positive
        let rounded = truncated(x * id + (f32::from(zero) + 0.5)) as i8;
        *code = rounded.min(2 * zero.cast_signed() - 1) as u8;
    }
    d
}

/// Codes from a minimum: without weights by the least and the greatest value.
fn from_minimum(
    x: &[f32],
    weights: Option<&[f32; 32]>,
    nmax: u8,
    codes: &mut [u8; 32],
) -> (f32, f32) {
    if let Some(weights) = weights {
        let (d, min) = with_minimum(nmax.into(), x, weights, codes, Trials::WEIGHTED);
        return (d, -min);
    }
    let (mut min, mut max) = (f32::MAX, -f32::MAX);
    for &x in x {
        if x < min {
            min = x;
        }
        if x > max {
            max = x;
        }
    }
    let d = (max - min) / f32::from(nmax);
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    for (x, code) in x.iter().zip(codes) {
        let rounded = truncated((x - min) * id + 0.5) as i8;
        // codes of 5 bits are not bounded there, and need not be
        *code = if nmax == 15 { rounded.min(15) } else { rounded }.cast_unsigned();
    }
    (d, min)
}

pub(super) fn q4_0(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    blocks(values, importance, out, 18, |x, weights, out| {
        let mut codes = [0; 32];
        let d = around(x, weights, 8, &mut codes);
        out[..2].copy_from_slice(&half(d).0);
        pack_nibbles(&codes, &mut out[2..]);
    })
}

pub(super) fn q4_1(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    blocks(values, importance, out, 20, |x, weights, out| {
        let mut codes = [0; 32];
        let (d, min) = from_minimum(x, weights, 15, &mut codes);
        out[..2].copy_from_slice(&half(d).0);
        out[2..4].copy_from_slice(&half(min).0);
        pack_nibbles(&codes, &mut out[4..]);
    })
}

pub(super) fn q5_0(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    blocks(values, importance, out, 22, |x, weights, out| {
        let mut codes = [0; 32];
        let d = around(x, weights, 16, &mut codes);
        out[..2].copy_from_slice(&half(d).0);
        pack_fifth(&codes, &mut out[2..]);
        pack_nibbles(&codes, &mut out[6..]);
    })
}

pub(super) fn q5_1(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    blocks(values, importance, out, 24, |x, weights, out| {
        let mut codes = [0; 32];
        let (d, min) = from_minimum(x, weights, 31, &mut codes);
        out[..2].copy_from_slice(&half(d).0);
        out[2..4].copy_from_slice(&half(min).0);
        pack_fifth(&codes, &mut out[4..]);
        pack_nibbles(&codes, &mut out[8..]);
    })
}
