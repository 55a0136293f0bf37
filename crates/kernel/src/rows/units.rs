//! Thirty-two codes of a row at a time, which are in one group or in two.

use super::super::batch::CODES;
use super::super::value::{Value, value};
use super::super::{Element, Lanes};
use super::{BY_127, Form, Rows, factor};

/// Codes that choose among the sixteen elements that a group has.
#[inline(always)]
pub(super) fn entries<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    rows: &Rows,
    start: usize,
    codes: &[[u8; 32]],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [[O::Cell; 32]],
) {
    let values = s.floats(match &rows.value {
        Value::Table(table) => table,
        _ => &CODES,
    });
    if rows.group.is_multiple_of(32) {
        let (mut codes, mut out) = (codes, out);
        let (mut g, mut left) = (start / rows.group, (rows.group - start % rows.group) / 32);
        while !codes.is_empty() {
            let count = left.min(codes.len());
            let ((now, codes_behind), (made, out_behind)) =
                (codes.split_at(count), out.split_at_mut(count));
            let values = rows.values(s, values, factor(scales, g), factor(zeros, g));
            let tables = O::tables::<S, PLAIN>(s, [values, values]);
            for (codes, out) in now.iter().zip(made) {
                O::pick(s, tables, [0; 2], s.bytes(codes), out);
            }
            (codes, out, g, left) = (codes_behind, out_behind, g + 1, rows.group / 32);
        }
    } else if rows.group == 16 && rows.form == Form::Scale {
        let scales = scales[start / 16..].as_chunks::<2>().0;
        for ((codes, scales), out) in codes.iter().zip(scales).zip(out) {
            let factors = [f32::from_ne_bytes(scales[0]), f32::from_ne_bytes(scales[1])];
            O::pick_scaled::<S, PLAIN>(s, values, factors, s.bytes(codes), out);
        }
    } else {
        let (mut g, mut left) = (start / rows.group, rows.group - start % rows.group);
        for (codes, out) in codes.iter().zip(out) {
            let second = if left == 16 { g + 1 } else { g };
            let low = rows.values(s, values, factor(scales, g), factor(zeros, g));
            let high = rows.values(s, values, factor(scales, second), factor(zeros, second));
            O::pick(
                s,
                O::tables::<S, PLAIN>(s, [low, high]),
                [0, 1],
                s.bytes(codes),
                out,
            );
            (g, left) = past(rows.group, g, left);
        }
    }
}

/// The group of the next 32 elements, and what is left of it.
#[inline(always)]
fn past(group: usize, g: usize, left: usize) -> (usize, usize) {
    match left {
        33.. => (g, left - 32),
        32 => (g + 1, group),
        // a group's last sixteen, then as many of the next
        _ if group == 16 => (g + 2, 16),
        _ => (g + 1, group - 16),
    }
}

/// Codes that are turned into numbers one by one.
#[inline(always)]
pub(super) fn numbers<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    rows: &Rows,
    start: usize,
    codes: &[[u8; 32]],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [[O::Cell; 32]],
) {
    let sane = PLAIN || factors_are_sane(scales);
    let plain = sane && !has_nan(&rows.value, codes.as_flattened());
    if rows.group.is_multiple_of(32) {
        let (mut codes, mut out) = (codes, out);
        let (mut g, mut left) = (start / rows.group, (rows.group - start % rows.group) / 32);
        while !codes.is_empty() {
            let count = left.min(codes.len());
            let ((now, codes_behind), (made, out_behind)) =
                (codes.split_at(count), out.split_at_mut(count));
            let (scale, zero) = (factor(scales, g), factor(zeros, g));
            match (&rows.value, rows.form) {
                (Value::Signed, Form::Scale) => {
                    let scale = s.splat(scale);
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = s.signed(s.bytes(codes));
                        O::put::<S, PLAIN>(s, [s.mul(low, scale), s.mul(high, scale)], out);
                    }
                }
                (Value::Signed, Form::Scale127) => {
                    let (scale, by) = (s.splat(scale), s.splat(BY_127));
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = s.signed(s.bytes(codes));
                        O::put::<S, PLAIN>(
                            s,
                            [s.mul(s.mul(low, scale), by), s.mul(s.mul(high, scale), by)],
                            out,
                        );
                    }
                }
                (Value::Unsigned, Form::ZeroScale) => {
                    let (scale, zero) = (s.splat(scale), s.splat(zero));
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = s.unsigned(s.bytes(codes));
                        let values = [
                            s.mul(s.sub(low, zero), scale),
                            s.mul(s.sub(high, zero), scale),
                        ];
                        O::put::<S, PLAIN>(s, values, out);
                    }
                }
                (Value::E4m3 | Value::E5m2, Form::Scale) if scale.abs() < 1e30 => {
                    if plain {
                        scaled_floats::<S, O, true>(s, &rows.value, now, scale, made);
                    } else {
                        scaled_floats::<S, O, false>(s, &rows.value, now, scale, made);
                    }
                }
                _ => {
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = any(s, rows, codes);
                        let values = [
                            rows.values(s, low, scale, zero),
                            rows.values(s, high, scale, zero),
                        ];
                        O::put::<S, PLAIN>(s, values, out);
                    }
                }
            }
            (codes, out, g, left) = (codes_behind, out_behind, g + 1, rows.group / 32);
        }
        return;
    }
    let (mut g, mut left) = (start / rows.group, rows.group - start % rows.group);
    for (codes, out) in codes.iter().zip(out) {
        let second = if left == 16 { g + 1 } else { g };
        let [low, high] = any(s, rows, codes);
        let low = rows.values(s, low, factor(scales, g), factor(zeros, g));
        let high = rows.values(s, high, factor(scales, second), factor(zeros, second));
        O::put::<S, PLAIN>(s, [low, high], out);
        (g, left) = past(rows.group, g, left);
    }
}

/// Values of any kind.
#[inline(always)]
fn any<S: Lanes>(s: S, rows: &Rows, codes: &[u8; 32]) -> [S::Floats; 2] {
    match rows.value {
        Value::Signed => s.signed(s.bytes(codes)),
        Value::Unsigned => s.unsigned(s.bytes(codes)),
        _ => {
            let mut values = [0.0; 32];
            value(&rows.value, codes, &mut values);
            let values = values.as_chunks::<16>().0;
            [s.floats(&values[0]), s.floats(&values[1])]
        }
    }
}

/// Eight-bit floats, by way of F16, and a scale that is not huge.
#[inline(always)]
fn scaled_floats<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    value: &Value,
    codes: &[[u8; 32]],
    scale: f32,
    out: &mut [[O::Cell; 32]],
) {
    if *value == Value::E5m2 {
        let scale = s.splat(scale);
        for (codes, out) in codes.iter().zip(out) {
            let mut halves = [[0; 2]; 32];
            for (half, code) in halves.iter_mut().zip(codes) {
                *half = (u16::from(*code) << 8).to_le_bytes();
            }
            let halves = halves.as_chunks::<16>().0;
            let values = [s.widen_f16(&halves[0]), s.widen_f16(&halves[1])];
            O::put::<S, PLAIN>(s, [s.mul(values[0], scale), s.mul(values[1], scale)], out);
        }
        return;
    }
    // as F16 they are 256 times smaller; powers of two are exact
    let scale = s.splat(scale * 256.0);
    for (codes, out) in codes.iter().zip(out) {
        let mut halves = [[0; 2]; 32];
        for (half, code) in halves.iter_mut().zip(codes) {
            let code = u16::from(*code);
            let number = (code & 0x80) << 8 | (code & 0x7f) << 7;
            let nan = !PLAIN && code & 0x7f == 0x7f;
            *half = (if nan { 0x7e00 } else { number }).to_le_bytes();
        }
        let halves = halves.as_chunks::<16>().0;
        let values = [s.widen_f16(&halves[0]), s.widen_f16(&halves[1])];
        O::put::<S, PLAIN>(s, [s.mul(values[0], scale), s.mul(values[1], scale)], out);
    }
}

/// Whether one of these is a NaN or infinite.
#[inline(always)]
fn has_nan(value: &Value, codes: &[u8]) -> bool {
    let least = if *value == Value::E5m2 { 0x7c } else { 0x7f };
    let mut any = 0u8;
    for code in codes {
        any |= u8::from(code & 0x7f >= least);
    }
    any != 0
}

/// Whether scales are neither tiny nor huge, and no NaN.
#[inline(always)]
pub(super) fn factors_are_sane(scales: &[[u8; 4]]) -> bool {
    let (least, most) = (f32::from_bits(100 << 23), 1e25);
    let mut all = true;
    // one by one without a way out, so that it is done many at a time
    for scale in scales {
        let scale = f32::from_ne_bytes(*scale);
        all &= (scale.abs() >= least) & (scale.abs() <= most) | (scale == 0.0);
    }
    all
}
