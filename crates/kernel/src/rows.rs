//! Rows of codes with a scale per group: the one kernel of most quantisation schemes.
//!
//! A row's codes are unpacked to bytes, [`CHUNK`] at a time, then converted to values, scaled and rounded once. Schemes
//! differ in data, not in code: how codes are packed ([`CodePacking`]), what a code stands for ([`CodeValue`]) and how
//! value, scale and zero point combine ([`Formula`]).

#[cfg(test)]
mod tests;
mod vectors;

use super::half::{bf16, f16, from_bf16, from_f16};
use super::unpack::{CHUNK, CodePacking, unpack};
use super::value::{CodeValue, one_value, value};
use super::{OutputElement, Simd, Stage, kernel};
use vectors::{RowChunk, convert_codes, lookup_codes, scales_are_moderate};

kernel!(decode, RowGeometry);

/// How a value `v`, its scale `s` and its zero point or offset `z` combine. Operations are applied in the order written,
/// each rounded to F32 unless said otherwise, because the reference implementations do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// `v * s`
    Scale,
    /// `(v - z) * s`
    ZeroScale,
    /// `v * s + z`
    ScaleOffset,
    /// `v * s * (1/127)`: bitsandbytes' INT8, with the F32 nearest to 1/127.
    Scale127,
    /// `v / s`
    Divide,
    /// `(v - z) * s`, each operation rounded to F16: HQQ as its reference computes it.
    ZeroScaleF16,
    /// `(v - z) * s`, each operation rounded to BF16.
    ZeroScaleBf16,
    /// `v * s + z`, each operation rounded to F16: MLX as its reference computes it with F16 scales.
    ScaleOffsetF16,
    /// `v * s + z`, each operation rounded to BF16.
    ScaleOffsetBf16,
}

impl Formula {
    /// Whether operations are rounded to 16 bits.
    fn is_in_16_bits(self) -> bool {
        match self {
            Self::ZeroScaleF16
            | Self::ZeroScaleBf16
            | Self::ScaleOffsetF16
            | Self::ScaleOffsetBf16 => true,
            Self::Scale | Self::ZeroScale | Self::ScaleOffset | Self::Scale127 | Self::Divide => {
                false
            }
        }
    }
}

/// The geometry of consecutive rows of codes.
///
/// Scales and zero points ("factors") form rows of their own, [`RowGeometry::groups`] each. A row of factors serves
/// `rows_per_factor` rows of codes: 1 for scales per row and group, 128 for FP8's blocks of 128 × 128.
#[derive(Clone, Debug)]
pub struct RowGeometry {
    /// Elements of a row.
    pub cols: usize,
    /// Bytes from the start of one row of codes to the start of the next.
    pub stride: usize,
    /// How the codes of a row are packed.
    pub packing: CodePacking,
    /// The value that a code stands for.
    pub value: CodeValue,
    /// How value, scale and zero point combine.
    pub formula: Formula,
    /// Consecutive elements of a row that share a factor. Multiples of 16 take the fast paths.
    pub group: usize,
    /// Consecutive rows that share a row of factors.
    pub rows_per_factor: usize,
    /// Rows of one matrix in a stack of matrices. A new matrix begins a new row of factors, even if fewer than
    /// `rows_per_factor` rows have used the last one.
    pub rows_per_matrix: usize,
    /// The index of the first row within its matrix.
    pub first: usize,
}

impl RowGeometry {
    /// Factors in a row of factors.
    pub fn groups(&self) -> usize {
        self.cols.div_ceil(self.group.max(1))
    }
}

/// Decodes rows. `parts` are the codes, the scales and the zero points; the last two hold F32 in this machine's byte order,
/// and the zero points may be empty.
#[inline(always)]
fn decode<S: Simd, O: OutputElement>(simd: S, rows: &RowGeometry, parts: &[&[u8]], out: &mut [u8]) {
    // checked once for all rows: FP8 and the formulas that subtract a zero point are checked per chunk, or take the
    // exact path
    let normal = O::IS_ROUNDED && rows.gives_normal(parts[1].as_chunks().0);
    decode_rows::<S, O>(simd, rows, parts, out, normal);
}

#[inline(always)]
fn decode_rows<S: Simd, O: OutputElement>(
    simd: S,
    rows: &RowGeometry,
    parts: &[&[u8]],
    out: &mut [u8],
    normal: bool,
) {
    let (codes, groups) = (parts[0], rows.groups());
    let (scales, zeros) = (parts[1].as_chunks::<4>().0, parts[2].as_chunks::<4>().0);
    let (mut in_matrix, mut factor_row) = (rows.first, 0);
    for (r, out) in O::as_stored(out)
        // a matrix without columns has no output, and `chunks_exact_mut(0)` panics
        .chunks_exact_mut(rows.cols.max(1))
        .enumerate()
    {
        let codes = &codes[r * rows.stride..];
        let scales = &scales[factor_row * groups..][..groups];
        let zeros = if zeros.is_empty() {
            zeros
        } else {
            &zeros[factor_row * groups..][..groups]
        };
        decode_row::<S, O>(simd, rows, codes, scales, zeros, out, normal);
        in_matrix += 1;
        if in_matrix == rows.rows_per_matrix {
            (in_matrix, factor_row) = (0, factor_row + 1);
        } else if in_matrix.is_multiple_of(rows.rows_per_factor) {
            factor_row += 1;
        }
    }
}

impl RowGeometry {
    /// Whether no element can be subnormal or NaN (see [`OutputElement::IS_ROUNDED`]): codes are integers or table entries of
    /// 1e-25 to 1e25, scales are moderate ([`scales_are_moderate`]), and there is no zero point to subtract. A product may
    /// then overflow to infinity, which is allowed, but not fall below the smallest normal F32, 1.2e-38.
    #[inline(always)]
    fn gives_normal(&self, scales: &[[u8; 4]]) -> bool {
        // the smallest product: 1e-25 times 2^-27, divided by 127, is 6e-36
        let (least, most) = (1e-25, 1e25);
        let codes = match &self.value {
            CodeValue::Signed | CodeValue::Unsigned => true,
            CodeValue::Table(table) => {
                let mut all = true;
                for v in table.iter() {
                    all &= *v == 0.0 || (least..most).contains(&v.abs());
                }
                all
            }
            _ => false,
        };
        let formula = matches!(self.formula, Formula::Scale | Formula::Scale127);
        formula && codes && scales_are_moderate(scales)
    }

    /// Whether codes take at most 16 values, so that each group can use a lookup table.
    #[inline(always)]
    fn uses_table(&self) -> bool {
        match (&self.value, self.packing) {
            (CodeValue::Table(_), _) => true,
            (CodeValue::Unsigned, CodePacking::LowNibbles | CodePacking::HighNibbles) => true,
            (
                CodeValue::Unsigned,
                CodePacking::Stream(bits)
                | CodePacking::Words(bits)
                | CodePacking::Plane(_, _, bits),
            ) => bits <= 4,
            _ => false,
        }
    }

    /// Applies the formula to 16 values of one group. Those that round in between, which `IN_16_BITS` says, go value by value.
    #[inline(always)]
    fn apply<S: Simd, const IN_16_BITS: bool>(
        &self,
        simd: S,
        values: S::Floats,
        scale: f32,
        zero: f32,
    ) -> S::Floats {
        match self.formula {
            Formula::Scale => simd.mul(values, simd.splat(scale)),
            Formula::ZeroScale => simd.mul(simd.sub(values, simd.splat(zero)), simd.splat(scale)),
            Formula::ScaleOffset => simd.add(simd.mul(values, simd.splat(scale)), simd.splat(zero)),
            Formula::Scale127 => simd.mul(simd.mul(values, simd.splat(scale)), simd.splat(BY_127)),
            Formula::Divide => {
                let mut values = simd.to_f32_array(values);
                for value in &mut values {
                    *value /= scale;
                }
                simd.load_f32(&values)
            }
            // HQQ and MLX compute in 16 bits: each operation is rounded before the next, which needs the bit pattern of
            // each value. Where `IN_16_BITS` is false this arm is gone: a call in a loop, though never made, costs the
            // loop its registers
            formula if IN_16_BITS => {
                let mut values = simd.to_f32_array(values);
                simd.outline(In16Bits {
                    formula,
                    values: &mut values,
                    scale,
                    zero,
                });
                simd.load_f32(&values)
            }
            formula => unreachable!("{formula:?} computes in 16 bits"),
        }
    }
}

/// Applies a formula that rounds in between to 16 values of one group.
struct In16Bits<'v> {
    formula: Formula,
    values: &'v mut [f32; 16],
    scale: f32,
    zero: f32,
}

impl Stage for In16Bits<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for value in self.values {
            *value = apply_to_one(self.formula, *value, self.scale, self.zero);
        }
    }
}

/// The F32 nearest to 1/127.
const BY_127: f32 = 7.874_016e-3;

/// Decodes one row. Groups of a multiple of 16 elements are decoded in vectors of 32 elements, of which each half lies in
/// one group; other groups and the end of the row are decoded element by element.
#[inline(always)]
fn decode_row<S: Simd, O: OutputElement>(
    simd: S,
    rows: &RowGeometry,
    codes: &[u8],
    scales: &[[u8; 4]],
    zeros: &[[u8; 4]],
    out: &mut [O::Stored],
    normal: bool,
) {
    // zeroed once per row: every chunk overwrites what is read of it
    let mut unpacked = [0u8; CHUNK];
    // hoisted: the geometry is the same for all chunks
    let uses_table = rows.uses_table();
    let group = rows.group;
    for (i, out) in out.chunks_mut(CHUNK).enumerate() {
        let start = i * CHUNK;
        let codes = unpack(simd, rows.packing, codes, start, out.len(), &mut unpacked);
        if group == 1 {
            let mut scaled = [0.0; CHUNK];
            simd.outline(Ungrouped {
                rows,
                codes,
                scales: &scales[start..],
                zeros: zeros.get(start..).unwrap_or_default(),
                out: &mut scaled,
            });
            for (x, out) in scaled.iter().zip(out) {
                *out = O::round(*x);
            }
            continue;
        }
        let vectors = if group.is_multiple_of(16) {
            out.len() / 32 * 32
        } else {
            0
        };
        let ((codes, rest_codes), (out, rest)) =
            (codes.split_at(vectors), out.split_at_mut(vectors));
        let (codes, out) = (codes.as_chunks::<32>().0, out.as_chunks_mut::<32>().0);
        let chunk = RowChunk {
            start,
            codes,
            scales,
            zeros,
        };
        // for each chunk and not for all rows, so that what is common to both is compiled once
        match (uses_table, normal) {
            (true, true) => {
                lookup_codes::<S, O, true>(simd, rows, chunk, out);
            }
            (true, false) => {
                lookup_codes::<S, O, false>(simd, rows, chunk, out);
            }
            (false, true) => {
                convert_codes::<S, O, true>(simd, rows, chunk, out);
            }
            (false, false) => {
                convert_codes::<S, O, false>(simd, rows, chunk, out);
            }
        }
        for (j, (code, out)) in rest_codes.iter().zip(rest).enumerate() {
            let g = (start + vectors + j) / group;
            // the end of the row, or a group size that is no multiple of 16
            let v = one_value(&rows.value, *code);
            let x = apply_to_one(rows.formula, v, factor(scales, g), factor(zeros, g));
            *out = O::round(x);
        }
    }
}

/// Decodes codes of which each has factors of its own: groups of one element, for scales per column.
struct Ungrouped<'r> {
    rows: &'r RowGeometry,
    codes: &'r [u8],
    scales: &'r [[u8; 4]],
    zeros: &'r [[u8; 4]],
    out: &'r mut [f32; CHUNK],
}

impl Stage for Ungrouped<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (formula, values) = (self.rows.formula, self.out);
        // values first, in a loop that vectorises, then factors
        let ((whole, rest), (whole_values, rest_values)) =
            (self.codes.as_chunks::<16>(), values.as_chunks_mut::<16>());
        for (codes, values) in whole.iter().zip(&mut *whole_values) {
            value(&self.rows.value, codes, values);
        }
        let last = whole_values[whole.len()..].as_flattened_mut();
        for (code, v) in rest.iter().zip(last.iter_mut().chain(rest_values)) {
            *v = one_value(&self.rows.value, *code);
        }
        let scaled = values[..self.codes.len()].iter_mut().zip(self.scales);
        if self.zeros.is_empty() {
            for (v, s) in scaled {
                *v = apply_to_one(formula, *v, f32::from_ne_bytes(*s), 0.0);
            }
        } else {
            for ((v, s), z) in scaled.zip(self.zeros) {
                *v = apply_to_one(formula, *v, f32::from_ne_bytes(*s), f32::from_ne_bytes(*z));
            }
        }
    }
}

/// Factor `g` of a row, or zero where there are none.
#[inline(always)]
fn factor(factors: &[[u8; 4]], g: usize) -> f32 {
    factors
        .get(g)
        // the caller has computed the factors, so they are in this machine's byte order
        .map_or(0.0, |factor| f32::from_ne_bytes(*factor))
}

#[inline(always)]
fn round_to_f16(x: f32) -> f32 {
    from_f16(f16(x).to_le_bytes())
}

#[inline(always)]
fn round_to_bf16(x: f32) -> f32 {
    from_bf16(bf16(x).to_le_bytes())
}

#[inline(always)]
fn apply_to_one(formula: Formula, v: f32, s: f32, z: f32) -> f32 {
    match formula {
        Formula::Scale => v * s,
        Formula::ZeroScale => (v - z) * s,
        Formula::ScaleOffset => v * s + z,
        Formula::Scale127 => v * s * BY_127,
        Formula::Divide => v / s,
        Formula::ZeroScaleF16 => round_to_f16(round_to_f16(v - z) * s),
        Formula::ZeroScaleBf16 => round_to_bf16(round_to_bf16(v - z) * s),
        Formula::ScaleOffsetF16 => round_to_f16(round_to_f16(v * s) + z),
        Formula::ScaleOffsetBf16 => round_to_bf16(round_to_bf16(v * s) + z),
    }
}
