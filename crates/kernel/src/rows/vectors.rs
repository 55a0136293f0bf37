//! Decoding rows in vectors of 32 codes, whose halves of 16 lie in one group each.
//!
//! Two ways: [`lookup_codes`] for codes of at most 16 values, where each group has a table of its 16 results, and
//! [`convert_codes`] for the others.

use super::super::batch::CODE_VALUES;
use super::super::value::{CodeValue, Values};
use super::super::{OutputElement, Simd};
use super::{BY_127, Formula, RowGeometry, factor};

/// Codes of a row that are decoded in vectors, and the factors of the whole row.
#[derive(Clone, Copy)]
pub(super) struct RowChunk<'r> {
    /// The index of the first code in its row.
    pub(super) start: usize,
    pub(super) codes: &'r [[u8; 32]],
    pub(super) scales: &'r [[u8; 4]],
    pub(super) zeros: &'r [[u8; 4]],
}

/// Decodes codes of at most 16 values: the formula is applied to all 16 and rounded once per group, and each code selects
/// one result (experiment 12).
#[inline(always)]
pub(super) fn lookup_codes<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    rows: &RowGeometry,
    chunk: RowChunk<'_>,
    out: &mut [[O::Stored; 32]],
) {
    if rows.formula.is_in_16_bits() {
        // a result rounded to 16 bits may be subnormal
        lookup_by_group::<S, O, false, true>(simd, rows, chunk, out);
    } else {
        lookup_by_group::<S, O, ASSUME_NORMAL, false>(simd, rows, chunk, out);
    }
}

#[inline(always)]
fn lookup_by_group<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool, const IN_16_BITS: bool>(
    simd: S,
    rows: &RowGeometry,
    chunk: RowChunk<'_>,
    out: &mut [[O::Stored; 32]],
) {
    let RowChunk {
        start,
        codes,
        scales,
        zeros,
    } = chunk;
    let values = simd.load_f32(match &rows.value {
        CodeValue::Table(table) => table,
        _ => &CODE_VALUES,
    });
    if rows.group.is_multiple_of(32) {
        let (mut codes, mut out) = (codes, out);
        let (mut g, mut left) = (start / rows.group, (rows.group - start % rows.group) / 32);
        // group by group: the factors are loaded and the table made once per group, not per vector
        while !codes.is_empty() {
            let count = left.min(codes.len());
            let ((now, codes_left), (made, out_left)) =
                (codes.split_at(count), out.split_at_mut(count));
            // the formula on 16 values instead of on every element, as it is rounded: the order of operations is the
            // same
            let values =
                rows.apply::<S, IN_16_BITS>(simd, values, factor(scales, g), factor(zeros, g));
            let tables = O::tables::<S, ASSUME_NORMAL>(simd, [values, values]);
            for (codes, out) in now.iter().zip(made) {
                O::lookup(simd, tables, [0; 2], simd.load_u8(codes), out);
            }
            (codes, out, g, left) = (codes_left, out_left, g + 1, rows.group / 32);
        }
    } else if rows.group == 16 && rows.formula == Formula::Scale {
        // groups of 16, as NVFP4 has them: each vector spans two groups, so a table would be used once
        let scales = scales[start / 16..].as_chunks::<2>().0;
        for ((codes, scales), out) in codes.iter().zip(scales).zip(out) {
            let factors = [f32::from_ne_bytes(scales[0]), f32::from_ne_bytes(scales[1])];
            O::lookup_scaled::<S, ASSUME_NORMAL>(simd, values, factors, simd.load_u8(codes), out);
        }
    } else {
        let (mut g, mut left) = (start / rows.group, rows.group - start % rows.group);
        for (codes, out) in codes.iter().zip(out) {
            // other multiples of 16: a vector may end in the next group
            let second = if left == 16 { g + 1 } else { g };
            let low =
                rows.apply::<S, IN_16_BITS>(simd, values, factor(scales, g), factor(zeros, g));
            let high = rows.apply::<S, IN_16_BITS>(
                simd,
                values,
                factor(scales, second),
                factor(zeros, second),
            );
            O::lookup(
                simd,
                O::tables::<S, ASSUME_NORMAL>(simd, [low, high]),
                [0, 1],
                simd.load_u8(codes),
                out,
            );
            (g, left) = advance_group(rows.group, g, left);
        }
    }
}

/// Advances by 32 elements: the group of the next element, and how many elements of that group are left, given `left`
/// elements of group `g`. `group` and `left` are multiples of 16.
#[inline(always)]
fn advance_group(group: usize, g: usize, left: usize) -> (usize, usize) {
    match left {
        33.. => (g, left - 32),
        32 => (g + 1, group),
        // 16 elements of group g, then all 16 of g + 1
        _ if group == 16 => (g + 2, 16),
        _ => (g + 1, group - 16),
    }
}

/// Decodes codes by converting each to F32 and applying the formula. The common pairs of value and formula have loops of
/// their own, in which the splatted factors stay in registers for a whole group.
#[inline(always)]
pub(super) fn convert_codes<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    rows: &RowGeometry,
    chunk: RowChunk<'_>,
    out: &mut [[O::Stored; 32]],
) {
    let RowChunk {
        start,
        codes,
        scales,
        zeros,
    } = chunk;
    let moderate = ASSUME_NORMAL || scales_are_moderate(scales);
    // for each chunk of 256 codes, so that a NaN costs the fast path of its chunk only
    let normal = moderate && !has_nan_or_infinity(&rows.value, codes.as_flattened());
    if rows.group.is_multiple_of(32) {
        let (mut codes, mut out) = (codes, out);
        let (mut g, mut left) = (start / rows.group, (rows.group - start % rows.group) / 32);
        while !codes.is_empty() {
            let count = left.min(codes.len());
            let ((now, codes_left), (made, out_left)) =
                (codes.split_at(count), out.split_at_mut(count));
            let (scale, zero) = (factor(scales, g), factor(zeros, g));
            // a loop for each common pair, so that value and formula are matched once per group instead of once per
            // vector
            match (&rows.value, rows.formula) {
                (CodeValue::Signed, Formula::Scale) => {
                    let scale = simd.splat(scale);
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = simd.i8_to_f32(simd.load_u8(codes));
                        O::store::<S, ASSUME_NORMAL>(
                            simd,
                            [simd.mul(low, scale), simd.mul(high, scale)],
                            out,
                        );
                    }
                }
                (CodeValue::Signed, Formula::Scale127) => {
                    let (scale, by) = (simd.splat(scale), simd.splat(BY_127));
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = simd.i8_to_f32(simd.load_u8(codes));
                        O::store::<S, ASSUME_NORMAL>(
                            simd,
                            [
                                simd.mul(simd.mul(low, scale), by),
                                simd.mul(simd.mul(high, scale), by),
                            ],
                            out,
                        );
                    }
                }
                (CodeValue::Unsigned, Formula::ZeroScale) => {
                    let (scale, zero) = (simd.splat(scale), simd.splat(zero));
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = simd.u8_to_f32(simd.load_u8(codes));
                        let values = [
                            simd.mul(simd.sub(low, zero), scale),
                            simd.mul(simd.sub(high, zero), scale),
                        ];
                        O::store::<S, ASSUME_NORMAL>(simd, values, out);
                    }
                }
                (CodeValue::E4m3 | CodeValue::E5m2, Formula::Scale) if scale.abs() < 1e30 => {
                    if normal {
                        convert_fp8::<S, O, true>(simd, &rows.value, now, scale, made);
                    } else {
                        convert_fp8::<S, O, false>(simd, &rows.value, now, scale, made);
                    }
                }
                _ => {
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = to_values(simd, rows, codes);
                        let values = [
                            rows.apply::<S, true>(simd, low, scale, zero),
                            rows.apply::<S, true>(simd, high, scale, zero),
                        ];
                        O::store::<S, ASSUME_NORMAL>(simd, values, out);
                    }
                }
            }
            (codes, out, g, left) = (codes_left, out_left, g + 1, rows.group / 32);
        }
        return;
    }
    let (mut g, mut left) = (start / rows.group, rows.group - start % rows.group);
    for (codes, out) in codes.iter().zip(out) {
        let second = if left == 16 { g + 1 } else { g };
        let [low, high] = to_values(simd, rows, codes);
        let low = rows.apply::<S, true>(simd, low, factor(scales, g), factor(zeros, g));
        let high = rows.apply::<S, true>(simd, high, factor(scales, second), factor(zeros, second));
        O::store::<S, ASSUME_NORMAL>(simd, [low, high], out);
        (g, left) = advance_group(rows.group, g, left);
    }
}

/// The values of 32 codes of any format.
#[inline(always)]
fn to_values<S: Simd>(simd: S, rows: &RowGeometry, codes: &[u8; 32]) -> [S::Floats; 2] {
    match rows.value {
        CodeValue::Signed => simd.i8_to_f32(simd.load_u8(codes)),
        CodeValue::Unsigned => simd.u8_to_f32(simd.load_u8(codes)),
        _ => {
            let mut values = [0.0; 32];
            simd.outline(Values {
                kind: &rows.value,
                codes,
                out: &mut values,
            });
            let values = values.as_chunks::<16>().0;
            [simd.load_f32(&values[0]), simd.load_f32(&values[1])]
        }
    }
}

/// Decodes FP8 by widening it to F16, which the processor converts to F32.
///
/// E5M2 is the upper byte of an F16. E4M3 has the mantissa at other bits and an exponent bias of 7 instead of F16's 15:
/// moved by one bit it is an F16 of 1/256 the value, subnormals included, and the scale makes up for it. Multiplying the
/// scale by 256 is exact unless it overflows, which the caller excludes (`scale.abs() < 1e30`).
#[inline(always)]
fn convert_fp8<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    value: &CodeValue,
    codes: &[[u8; 32]],
    scale: f32,
    out: &mut [[O::Stored; 32]],
) {
    if *value == CodeValue::E5m2 {
        let scale = simd.splat(scale);
        for (codes, out) in codes.iter().zip(out) {
            let mut halves = [[0; 2]; 32];
            for (half, code) in halves.iter_mut().zip(codes) {
                *half = (u16::from(*code) << 8).to_le_bytes();
            }
            let halves = halves.as_chunks::<16>().0;
            let values = [simd.widen_f16(&halves[0]), simd.widen_f16(&halves[1])];
            O::store::<S, ASSUME_NORMAL>(
                simd,
                [simd.mul(values[0], scale), simd.mul(values[1], scale)],
                out,
            );
        }
        return;
    }
    let scale = simd.splat(scale * 256.0);
    for (codes, out) in codes.iter().zip(out) {
        let mut halves = [[0; 2]; 32];
        for (half, code) in halves.iter_mut().zip(codes) {
            let code = u16::from(*code);
            let number = (code & 0x80) << 8 | (code & 0x7f) << 7;
            // 0x7f moved like a number would be 480; leaving the check out where there is no NaN, or taking whole rows
            // at once, gained nothing (experiment 37)
            let nan = !ASSUME_NORMAL && code & 0x7f == 0x7f;
            *half = (if nan { 0x7e00 } else { number }).to_le_bytes();
        }
        let halves = halves.as_chunks::<16>().0;
        let values = [simd.widen_f16(&halves[0]), simd.widen_f16(&halves[1])];
        O::store::<S, ASSUME_NORMAL>(
            simd,
            [simd.mul(values[0], scale), simd.mul(values[1], scale)],
            out,
        );
    }
}

/// Whether a code is a NaN or an infinity of E5M2 (0x7c to 0x7f), or a NaN of the other formats (0x7f), the sign aside.
#[inline(always)]
fn has_nan_or_infinity(value: &CodeValue, codes: &[u8]) -> bool {
    let least = if *value == CodeValue::E5m2 {
        0x7c
    } else {
        0x7f
    };
    let mut any = 0u8;
    for code in codes {
        any |= u8::from(code & 0x7f >= least);
    }
    any != 0
}

/// Whether every scale is zero or of magnitude 2^-27 to 1e25, hence no NaN: products with FP8 values (2^-16 at least) and
/// integers then stay normal.
#[inline(always)]
pub(super) fn scales_are_moderate(scales: &[[u8; 4]]) -> bool {
    let (least, most) = (f32::from_bits(100 << 23), 1e25);
    let mut all = true;
    // without an early exit, so that the compiler vectorises the loop (experiment 49)
    for scale in scales {
        let scale = f32::from_ne_bytes(*scale);
        all &= (scale.abs() >= least) & (scale.abs() <= most) | (scale == 0.0);
    }
    all
}
