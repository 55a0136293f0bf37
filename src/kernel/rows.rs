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

/// Makes rows from codes, scales and zero points. `scales` and `zeros` (may be empty) hold one row of
/// [`Rows::groups`] for each row of factors.
/// The parts are the codes, the scales and the zero points, the last two in F32 of this machine's byte order.
#[inline(always)]
fn make<S: Lanes, O: Element>(_: S, rows: &Rows, parts: &[&[u8]], out: &mut [u8]) {
    let (codes, groups) = (parts[0], rows.groups());
    let [scales, zeros] = [parts[1], parts[2]].map(|factors| factors.as_chunks::<4>().0);
    let (mut in_matrix, mut factor) = (rows.first, 0);
    for (r, out) in O::cells(out).chunks_exact_mut(rows.cols.max(1)).enumerate() {
        let codes = &codes[r * rows.stride..];
        let scales = &scales[factor * groups..][..groups];
        let zeros = if zeros.is_empty() { zeros } else { &zeros[factor * groups..][..groups] };
        row::<O>(rows, codes, scales, zeros, out);
        in_matrix += 1;
        if in_matrix == rows.rows_per_matrix {
            (in_matrix, factor) = (0, factor + 1);
        } else if in_matrix.is_multiple_of(rows.rows_per_factor) {
            factor += 1;
        }
    }
}

#[inline(always)]
fn row<O: Element>(rows: &Rows, codes: &[u8], scales: &[[u8; 4]], zeros: &[[u8; 4]], out: &mut [O::Cell]) {
    let mut room = [0u8; CHUNK];
    for (i, out) in out.chunks_mut(CHUNK).enumerate() {
        let start = i * CHUNK;
        let codes = unpack(rows.packing, codes, start, out.len(), &mut room);
        if rows.group == 1 {
            columns::<O>(rows, codes, &scales[start..], zeros.get(start..).unwrap_or_default(), out);
            continue;
        }
        // units of 16 that lie in one group need no look at where groups end
        if rows.group.is_multiple_of(16) && out.len().is_multiple_of(16) {
            let units = codes.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0);
            for (u, (codes, out)) in units.enumerate() {
                let g = (start + 16 * u) / rows.group;
                unit::<O, 16>(rows, codes, factor(scales, g), factor(zeros, g), out);
            }
        } else {
            for (j, (code, out)) in codes.iter().zip(out).enumerate() {
                let g = (start + j) / rows.group;
                let mut cell = [*out];
                unit::<O, 1>(rows, &[*code], factor(scales, g), factor(zeros, g), &mut cell);
                *out = cell[0];
            }
        }
    }
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
fn unit<O: Element, const N: usize>(rows: &Rows, codes: &[u8; N], s: f32, z: f32, out: &mut [O::Cell; N]) {
    let mut values = [0.0; N];
    value(&rows.value, codes, &mut values);
    for (v, out) in values.iter().zip(out) {
        *out = O::cell(form(rows.form, *v, s, z));
    }
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
        Form::Scale127 => v * s * 7.874_016e-3,
        Form::Divide => v / s,
        Form::ZeroScaleF16 => in_f16(in_f16(v - z) * s),
        Form::ZeroScaleBf16 => in_bf16(in_bf16(v - z) * s),
        Form::ScaleOffsetF16 => in_f16(in_f16(v * s) + z),
        Form::ScaleOffsetBf16 => in_bf16(in_bf16(v * s) + z),
    }
}
