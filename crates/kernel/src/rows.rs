//! Rows of codes with a scale per group: the one kernel of most schemes.
//!
//! A row's codes are unpacked into bytes, 256 at a time, then turned into values, scaled and rounded once.
//! What differs between schemes is data: how codes are packed, what a code is worth, what is done with
//! scale and zero point.

#[cfg(test)]
mod tests;
mod units;

use super::half::{bf16, f16, from_bf16, from_f16};
use super::unpack::{Packing, unpack};
use super::value::{Value, value};
use super::{Element, Lanes, kernel};
use units::{entries, factors_are_sane, numbers};

kernel!(make, Rows);

/// Codes unpacked at a time.
pub(crate) const CHUNK: usize = 256;

/// What is done with a value `v`, its scale `s` and its zero point or offset `z`, in this order and each
/// rounded to F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
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
pub struct Rows {
    /// Elements of a row.
    pub cols: usize,
    /// Bytes from one row of codes to the next.
    pub stride: usize,
    /// How the codes of a row are packed.
    pub packing: Packing,
    /// What a code is worth.
    pub value: Value,
    /// What is done with value, scale and zero point.
    pub form: Form,
    /// Columns that share a factor.
    pub group: usize,
    /// Rows that share a row of factors.
    pub rows_per_factor: usize,
    /// Rows after which a row of factors is begun anyway: those of one matrix of a stack.
    pub rows_per_matrix: usize,
    /// Which row of its matrix the first one is.
    pub first: usize,
}

impl Rows {
    /// Factors in a row of them.
    pub fn groups(&self) -> usize {
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
fn every<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    rows: &Rows,
    parts: &[&[u8]],
    out: &mut [u8],
) {
    let (codes, groups) = (parts[0], rows.groups());
    let (scales, zeros) = (parts[1].as_chunks::<4>().0, parts[2].as_chunks::<4>().0);
    let (mut in_matrix, mut factor) = (rows.first, 0);
    for (r, out) in O::cells(out).chunks_exact_mut(rows.cols.max(1)).enumerate() {
        let codes = &codes[r * rows.stride..];
        let scales = &scales[factor * groups..][..groups];
        let zeros = if zeros.is_empty() {
            zeros
        } else {
            &zeros[factor * groups..][..groups]
        };
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
            Value::Table(table) => {
                let mut all = true;
                for v in table.iter() {
                    all &= *v == 0.0 || (least..most).contains(&v.abs());
                }
                all
            }
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
            (
                Value::Unsigned,
                Packing::Stream(bits) | Packing::Words(bits) | Packing::Plane(_, _, bits),
            ) => bits <= 4,
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
            columns::<O>(
                rows,
                codes,
                &scales[start..],
                zeros.get(start..).unwrap_or_default(),
                out,
            );
            continue;
        }
        let whole = if group.is_multiple_of(16) {
            out.len() / 32 * 32
        } else {
            0
        };
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

/// Each column has its own factors.
#[inline(always)]
fn columns<O: Element>(
    rows: &Rows,
    codes: &[u8],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [O::Cell],
) {
    let mut values = [0.0; CHUNK];
    let (values, _) = values.split_at_mut(codes.len());
    let ((whole, rest), (whole_values, rest_values)) =
        (codes.as_chunks::<16>(), values.as_chunks_mut::<16>());
    for (codes, values) in whole.iter().zip(whole_values) {
        value(&rows.value, codes, values);
    }
    for (code, v) in rest.iter().zip(rest_values) {
        value(&rows.value, &[*code], std::array::from_mut(v));
    }
    let scaled = values.iter().zip(scales).zip(out);
    if zeros.is_empty() {
        for ((v, s), out) in scaled {
            *out = O::cell(form(rows.form, *v, f32::from_ne_bytes(*s), 0.0));
        }
    } else {
        for (((v, s), out), z) in scaled.zip(zeros) {
            *out = O::cell(form(
                rows.form,
                *v,
                f32::from_ne_bytes(*s),
                f32::from_ne_bytes(*z),
            ));
        }
    }
}

#[inline(always)]
fn factor(factors: &[[u8; 4]], g: usize) -> f32 {
    factors
        .get(g)
        .map_or(0.0, |factor| f32::from_ne_bytes(*factor))
}

#[inline(always)]
fn in_f16(x: f32) -> f32 {
    from_f16(f16(x).to_le_bytes())
}

#[inline(always)]
fn in_bf16(x: f32) -> f32 {
    from_bf16(bf16(x).to_le_bytes())
}

#[inline(always)]
fn form(form: Form, v: f32, s: f32, z: f32) -> f32 {
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
