//! Rows of codes with a scale per group: the one kernel of most schemes.
//!
//! A row's codes are unpacked into bytes, 256 at a time, then turned into values, scaled and rounded once.
//! What differs between schemes is data: how codes are packed, what a code is worth, what is done with
//! scale and zero point.

use super::unpack::{Packing, unpack};
use super::value::{Value, value};
use super::{Element, Lanes, kernel};

kernel!(make, Rows);

/// Codes unpacked at a time.
pub(crate) const CHUNK: usize = 256;

/// What is done with a value `v`, its scale `s` and its zero point or offset `z`, in this order and each
/// rounded to F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `v * s`
    Scale,
    /// `(v - z) * s`
    ZeroScale,
    /// `v * s + z`
    ScaleOffset,
    /// `v * s * (1/127)`: bitsandbytes' INT8, whose constant is the F32 nearest to that.
    Scale127,
    /// `v / s`
    Divide,
    /// `(v - z) * s`, each rounded to F16: HQQ as its reference does it.
    ZeroScaleF16,
    /// `(v - z) * s`, each rounded to BF16.
    ZeroScaleBf16,
    /// `v * s + z`, each rounded to F16: MLX as its reference does it with F16 scales.
    ScaleOffsetF16,
    /// `v * s + z`, each rounded to BF16.
    ScaleOffsetBf16,
}

/// The geometry of some rows.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// Elements of a row.
    pub(crate) cols: usize,
    /// Bytes from one row of codes to the next.
    pub(crate) stride: usize,
    pub(crate) packing: Packing,
    pub(crate) value: Value,
    pub(crate) form: Form,
    /// Columns that share a factor.
    pub(crate) group: usize,
    /// Rows that share a row of factors.
    pub(crate) rows_per_factor: usize,
    /// Rows after which a row of factors is begun anyway: those of one matrix of a stack.
    pub(crate) rows_per_matrix: usize,
    /// Which row of its matrix the first one is.
    pub(crate) first: usize,
}

impl Rows {
    /// Factors in a row of them.
    pub(crate) fn groups(&self) -> usize {
        self.cols.div_ceil(self.group.max(1))
    }
}

/// Makes rows from codes, scales and zero points: the parts are the codes, the scales and the zero points (may be
/// empty), the last two in F32 of this machine's byte order, one row of [`Rows::groups`] for each row of factors.
#[inline(always)]
fn make<S: Lanes, O: Element>(s: S, rows: &Rows, parts: &[&[u8]], out: &mut [u8]) {
    if O::PARTICULAR && rows.plain(parts[1].as_chunks().0) {
        every::<S, O, true>(s, rows, parts, out);
    } else {
        every::<S, O, false>(s, rows, parts, out);
    }
}

#[inline(always)]
fn every<S: Lanes, O: Element, const PLAIN: bool>(s: S, rows: &Rows, parts: &[&[u8]], out: &mut [u8]) {
    let (codes, groups) = (parts[0], rows.groups());
    let (scales, zeros) = (parts[1].as_chunks::<4>().0, parts[2].as_chunks::<4>().0);
    let (mut in_matrix, mut factor) = (rows.first, 0);
    for (r, out) in O::cells(out).chunks_exact_mut(rows.cols.max(1)).enumerate() {
        let codes = &codes[r * rows.stride..];
        let scales = &scales[factor * groups..][..groups];
        let zeros = if zeros.is_empty() { zeros } else { &zeros[factor * groups..][..groups] };
        row::<S, O, PLAIN>(s, rows, codes, scales, zeros, out);
        in_matrix += 1;
        if in_matrix == rows.rows_per_matrix {
            (in_matrix, factor) = (0, factor + 1);
        } else if in_matrix.is_multiple_of(rows.rows_per_factor) {
            factor += 1;
        }
    }
}

impl Rows {
    /// Whether no element is subnormal or NaN: codes are small whole numbers or finite entries of a table, and
    /// scales neither tiny nor huge.
    #[inline(always)]
    fn plain(&self, scales: &[[u8; 4]]) -> bool {
        let (least, most) = (1e-25, 1e25);
        let codes = match &self.value {
            Value::Signed | Value::Unsigned => true,
            Value::Table(table) => table.iter().all(|v| *v == 0.0 || (least..most).contains(&v.abs())),
            _ => false,
        };
        let form = matches!(self.form, Form::Scale | Form::Scale127);
        form && codes && factors_are_sane(scales)
    }

    /// Whether codes have at most sixteen values, so that a table of them is worth it.
    #[inline(always)]
    fn tabled(&self) -> bool {
        match (&self.value, self.packing) {
            (Value::Table(_), _) => true,
            (Value::Unsigned, Packing::LowNibbles | Packing::HighNibbles) => true,
            (Value::Unsigned, Packing::Stream(bits) | Packing::Words(bits) | Packing::Plane(_, _, bits)) => bits <= 4,
            _ => false,
        }
    }

    /// What the sixteen codes stand for in a group.
    #[inline(always)]
    fn values<S: Lanes>(&self, s: S, codes: S::Floats, scale: f32, zero: f32) -> S::Floats {
        match self.form {
            Form::Scale => s.mul(codes, s.splat(scale)),
            Form::ZeroScale => s.mul(s.sub(codes, s.splat(zero)), s.splat(scale)),
            Form::ScaleOffset => s.add(s.mul(codes, s.splat(scale)), s.splat(zero)),
            Form::Scale127 => s.mul(s.mul(codes, s.splat(scale)), s.splat(BY_127)),
            other => {
                let mut values = s.array(codes);
                for value in &mut values {
                    *value = form(other, *value, scale, zero);
                }
                s.floats(&values)
            }
        }
    }
}

/// The F32 nearest to 1/127.
const BY_127: f32 = 7.874_016e-3;

#[inline(always)]
fn row<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    rows: &Rows,
    codes: &[u8],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [O::Cell],
) {
    let mut room = [0u8; CHUNK];
    let tabled = rows.tabled();
    let group = rows.group;
    for (i, out) in out.chunks_mut(CHUNK).enumerate() {
        let start = i * CHUNK;
        let codes = unpack(s, rows.packing, codes, start, out.len(), &mut room);
        if group == 1 {
            columns::<O>(rows, codes, &scales[start..], zeros.get(start..).unwrap_or_default(), out);
            continue;
        }
        let whole = if group.is_multiple_of(16) { out.len() / 32 * 32 } else { 0 };
        let ((codes, rest_codes), (out, rest)) = (codes.split_at(whole), out.split_at_mut(whole));
        let (codes, out) = (codes.as_chunks::<32>().0, out.as_chunks_mut::<32>().0);
        if tabled {
            entries::<S, O, PLAIN>(s, rows, start, codes, scales, zeros, out);
        } else {
            numbers::<S, O, PLAIN>(s, rows, start, codes, scales, zeros, out);
        }
        for (j, (code, out)) in rest_codes.iter().zip(rest).enumerate() {
            let g = (start + whole + j) / group;
            let mut v = [0.0];
            value(&rows.value, &[*code], &mut v);
            *out = O::cell(form(rows.form, v[0], factor(scales, g), factor(zeros, g)));
        }
    }
}

/// Codes that choose among the sixteen elements that a group has.
#[inline(always)]
fn entries<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    rows: &Rows,
    start: usize,
    codes: &[[u8; 32]],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [[O::Cell; 32]],
) {
    let mut values = [0.0; 16];
    value(&rows.value, &SIXTEEN, &mut values);
    let values = s.floats(&values);
    if rows.group.is_multiple_of(32) {
        let (mut codes, mut out) = (codes, out);
        let (mut g, mut left) = (start / rows.group, (rows.group - start % rows.group) / 32);
        while !codes.is_empty() {
            let count = left.min(codes.len());
            let ((now, codes_behind), (made, out_behind)) = (codes.split_at(count), out.split_at_mut(count));
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
            let low = s.mul(values, s.splat(f32::from_ne_bytes(scales[0])));
            let high = s.mul(values, s.splat(f32::from_ne_bytes(scales[1])));
            O::pick(s, O::tables::<S, PLAIN>(s, [low, high]), [0, 1], s.bytes(codes), out);
        }
    } else {
        let (mut g, mut left) = (start / rows.group, rows.group - start % rows.group);
        for (codes, out) in codes.iter().zip(out) {
            let second = if left == 16 { g + 1 } else { g };
            let low = rows.values(s, values, factor(scales, g), factor(zeros, g));
            let high = rows.values(s, values, factor(scales, second), factor(zeros, second));
            O::pick(s, O::tables::<S, PLAIN>(s, [low, high]), [0, 1], s.bytes(codes), out);
            (g, left) = past(rows.group, g, left);
        }
    }
}

static SIXTEEN: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

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
fn numbers<S: Lanes, O: Element, const PLAIN: bool>(
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
            let ((now, codes_behind), (made, out_behind)) = (codes.split_at(count), out.split_at_mut(count));
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
                        O::put::<S, PLAIN>(s, [s.mul(s.mul(low, scale), by), s.mul(s.mul(high, scale), by)], out);
                    }
                }
                (Value::Unsigned, Form::ZeroScale) => {
                    let (scale, zero) = (s.splat(scale), s.splat(zero));
                    for (codes, out) in now.iter().zip(made) {
                        let [low, high] = s.unsigned(s.bytes(codes));
                        let values = [s.mul(s.sub(low, zero), scale), s.mul(s.sub(high, zero), scale)];
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
                        let values = [rows.values(s, low, scale, zero), rows.values(s, high, scale, zero)];
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
fn factors_are_sane(scales: &[[u8; 4]]) -> bool {
    let (least, most) = (f32::from_bits(100 << 23), 1e25);
    let mut all = true;
    // one by one without a way out, so that it is done many at a time
    for scale in scales {
        let scale = f32::from_ne_bytes(*scale);
        all &= (scale.abs() >= least) & (scale.abs() <= most) | (scale == 0.0);
    }
    all
}

/// Each column has its own factors.
#[inline(always)]
fn columns<O: Element>(rows: &Rows, codes: &[u8], scales: &[[u8; 4]], zeros: &[[u8; 4]], out: &mut [O::Cell]) {
    let mut values = [0.0; CHUNK];
    let (values, _) = values.split_at_mut(codes.len());
    let ((whole, rest), (whole_values, rest_values)) = (codes.as_chunks::<16>(), values.as_chunks_mut::<16>());
    whole.iter().zip(whole_values).for_each(|(codes, values)| value(&rows.value, codes, values));
    rest.iter().zip(rest_values).for_each(|(code, v)| value(&rows.value, &[*code], std::array::from_mut(v)));
    let scaled = values.iter().zip(scales).zip(out);
    if zeros.is_empty() {
        scaled.for_each(|((v, s), out)| *out = O::cell(form(rows.form, *v, f32::from_ne_bytes(*s), 0.0)));
    } else {
        scaled.zip(zeros).for_each(|(((v, s), out), z)| {
            *out = O::cell(form(rows.form, *v, f32::from_ne_bytes(*s), f32::from_ne_bytes(*z)))
        });
    }
}

#[inline(always)]
fn factor(factors: &[[u8; 4]], g: usize) -> f32 {
    factors.get(g).map_or(0.0, |factor| f32::from_ne_bytes(*factor))
}

#[inline(always)]
fn form(form: Form, v: f32, s: f32, z: f32) -> f32 {
    use super::half::{bf16, f16, from_bf16, from_f16};
    let in_f16 = |x: f32| from_f16(f16(x).to_le_bytes());
    let in_bf16 = |x: f32| from_bf16(bf16(x).to_le_bytes());
    match form {
        Form::Scale => v * s,
        Form::ZeroScale => (v - z) * s,
        Form::ScaleOffset => v * s + z,
        Form::Scale127 => v * s * BY_127,
        Form::Divide => v / s,
        Form::ZeroScaleF16 => in_f16(in_f16(v - z) * s),
        Form::ZeroScaleBf16 => in_bf16(in_bf16(v - z) * s),
        Form::ScaleOffsetF16 => in_f16(in_f16(v * s) + z),
        Form::ScaleOffsetBf16 => in_bf16(in_bf16(v * s) + z),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    /// All builds give what the definition gives, code by code, for every kind of value, form and size of group.
    #[test]
    fn every_build_gives_the_definition() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let table = Value::Table(Box::new(super::super::E2M1));
        let codes = [
            (Packing::Bytes, Value::E4m3),
            (Packing::Bytes, Value::E5m2),
            (Packing::Bytes, Value::E4m3Fnuz),
            (Packing::Bytes, Value::Signed),
            (Packing::Bytes, Value::Unsigned),
            (Packing::LowNibbles, table.clone()),
            (Packing::HighNibbles, table),
            (Packing::Stream(4), Value::Unsigned),
            (Packing::Stream(3), Value::Unsigned),
            (Packing::Stream(6), Value::E2m3),
        ];
        let forms =
            [Form::Scale, Form::ZeroScale, Form::ScaleOffset, Form::Scale127, Form::Divide, Form::ScaleOffsetF16];
        for (packing, value_) in codes {
            for (form_, group) in forms.into_iter().flat_map(|f| [1, 7, 16, 32, 48, 64, 600].map(|g| (f, g))) {
                for wild in [false, true] {
                    let (cols, count) = (600usize, 3);
                    let stride = packing.row_bytes(cols as u64).unwrap() as usize;
                    let bytes: Vec<u8> = (0..stride * count).map(|_| random() as u8).collect();
                    let rows = Rows {
                        cols,
                        stride,
                        packing,
                        value: value_.clone(),
                        form: form_,
                        group,
                        rows_per_factor: 1,
                        rows_per_matrix: count,
                        first: 0,
                    };
                    let mut factors = || -> Vec<f32> {
                        let bits = |x: u32| if wild { x << 1 } else { 0x3c00_0000 | x >> 9 };
                        (0..rows.groups() * count).map(|_| f32::from_bits(bits(random()))).collect()
                    };
                    let (scales, zeros) = (factors(), factors());
                    let mut expected = Vec::new();
                    for r in 0..count {
                        for c in 0..cols {
                            let at = |bits: usize| (0..bits).map(move |b| (c * bits + b, b));
                            let bit = |i: usize| bytes[r * stride + i / 8] >> (i % 8) & 1;
                            let code = match packing {
                                Packing::Bytes => bytes[r * stride + c],
                                Packing::HighNibbles => bytes[r * stride + c / 2] >> (4 - c % 2 * 4) & 15,
                                Packing::LowNibbles => at(4).map(|(i, b)| bit(i) << b).sum(),
                                Packing::Stream(bits) => at(bits as usize).map(|(i, b)| bit(i) << b).sum(),
                                _ => unreachable!("not among those above"),
                            };
                            let mut v = [0.0];
                            value(&value_, &[code], &mut v);
                            let g = r * rows.groups() + c / group;
                            expected.push(form(form_, v[0], scales[g], zeros[g]));
                        }
                    }
                    let parts = [&bytes[..], bytemuck::cast_slice(&scales), bytemuck::cast_slice(&zeros)];
                    for build in KERNEL.usable() {
                        let what = format!("{packing:?} {value_:?} {form_:?} {group} {wild} {}", build.isa.name());
                        let mut out = vec![0; cols * count * 4];
                        build.run(Dtype::F32, &rows, &parts, &mut out).unwrap();
                        for (found, x) in out.as_chunks().0.iter().zip(&expected) {
                            let found = f32::from_le_bytes(*found);
                            assert!(
                                found.to_bits() == x.to_bits() || found.is_nan() && x.is_nan(),
                                "{what}: {found} {x}"
                            );
                        }
                        for (dtype, round) in [
                            (Dtype::BF16, super::super::half::bf16 as fn(f32) -> u16),
                            (Dtype::F16, super::super::half::f16),
                        ] {
                            let mut out = vec![0; cols * count * 2];
                            build.run(dtype, &rows, &parts, &mut out).unwrap();
                            for (found, x) in out.as_chunks().0.iter().zip(&expected) {
                                let nan = if dtype == Dtype::F16 {
                                    u16::from_le_bytes(*found) & 0x7fff == 0x7e00
                                } else {
                                    true
                                };
                                let same = u16::from_le_bytes(*found) == round(*x) || x.is_nan() && nan;
                                assert!(same, "{what} {dtype}: {found:02x?} {x}");
                            }
                        }
                    }
                }
            }
        }
    }
}
