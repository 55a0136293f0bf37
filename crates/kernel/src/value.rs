//! The values that codes stand for: narrow floats, integers and tables of 16.
//!
//! Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP Microscaling Formats 1.0 (E2M1, E2M3, E3M2, E8M0),
//! ONNX's page on FP8 (the FNUZ types).

use super::half::from_f16;
use super::{Simd, Stage};
use crate::dtype::Dtype;

/// The value that a code of up to 8 bits stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum CodeValue {
    /// OCP E4M3: no infinities, NaN is `0x7f` and `0xff`.
    E4m3,
    /// OCP E5M2: the upper half of an F16.
    E5m2,
    /// E4M3 with bias 8, one zero, and NaN at `0x80`.
    E4m3Fnuz,
    /// E5M2 with bias 16, one zero, and NaN at `0x80`.
    E5m2Fnuz,
    /// FP6 with 2 bits of exponent.
    E2m3,
    /// FP6 with 3 bits of exponent.
    E3m2,
    /// A signed integer (two's complement byte).
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// An entry of a table of 16 values, by the low four bits: NF4, FP4 ([`E2M1_VALUES`]).
    Table(Box<[f32; 16]>),
}

impl CodeValue {
    /// The value format of a dtype of 8 bits: narrow floats, I8, U8.
    pub fn of(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::F8_E4M3 => Self::E4m3,
            Dtype::F8_E5M2 => Self::E5m2,
            Dtype::F8_E4M3FNUZ => Self::E4m3Fnuz,
            Dtype::F8_E5M2FNUZ => Self::E5m2Fnuz,
            Dtype::I8 => Self::Signed,
            Dtype::U8 => Self::Unsigned,
            _ => return None,
        })
    }
}

/// The values of codes, one byte each.
pub fn code_values(kind: &CodeValue, codes: &[u8]) -> Vec<f32> {
    // a table of all 256 codes, then one lookup per code
    let mut every = [0; 256];
    every
        .iter_mut()
        .zip(0..=255)
        .for_each(|(code, i)| *code = i);
    let mut table = [0.0; 256];
    value(kind, &every, &mut table);
    codes.iter().map(|code| table[usize::from(*code)]).collect()
}

/// The values of FP4 (E2M1) by code; code 8 is -0.
pub const E2M1_VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// Writes the values of `codes` to `out`. The match is outside of the loops, so that each loop vectorises.
#[inline(always)]
pub(crate) fn value<const N: usize>(value: &CodeValue, codes: &[u8; N], out: &mut [f32; N]) {
    macro_rules! decode_each {
        (|$code:ident| $value:expr) => {
            for ($code, out) in codes.iter().zip(out) {
                let $code = *$code;
                *out = $value;
            }
        };
    }
    match value {
        CodeValue::E4m3 => decode_each!(|code| e4m3(code)),
        CodeValue::E5m2 => decode_each!(|code| from_f16([0, code])),
        CodeValue::E4m3Fnuz => decode_each!(|code| fnuz::<3>(code)),
        CodeValue::E5m2Fnuz => decode_each!(|code| fnuz::<2>(code)),
        CodeValue::E2m3 => decode_each!(|code| small::<3>(code, 6)),
        CodeValue::E3m2 => decode_each!(|code| small::<2>(code, 6)),
        CodeValue::Signed => decode_each!(|code| f32::from(code.cast_signed())),
        CodeValue::Unsigned => decode_each!(|code| f32::from(code)),
        CodeValue::Table(table) => decode_each!(|code| table[usize::from(code & 15)]),
    }
}

/// The values of 32 codes of a format that few schemes have, as a stage.
pub(crate) struct Values<'v> {
    pub(crate) kind: &'v CodeValue,
    pub(crate) codes: &'v [u8; 32],
    pub(crate) out: &'v mut [f32; 32],
}

impl Stage for Values<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        value(self.kind, self.codes, self.out);
    }
}

/// The value of one code, for the ends of rows. Never inlined, as kernels would hold all formats for it.
#[inline(never)]
pub(crate) fn one_value(kind: &CodeValue, code: u8) -> f32 {
    let mut values = [0.0];
    value(kind, &[code], &mut values);
    values[0]
}

/// OCP E4M3. Exponent and mantissa are moved to F32's bits; multiplying by 2^120 corrects the exponent bias (127 - 7), and
/// makes subnormals normal, without a branch.
#[inline(always)]
pub(crate) fn e4m3(code: u8) -> f32 {
    let (sign, magnitude) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    // exact: a power of two times a number with four significant bits
    let finite = f32::from_bits(magnitude << 20) * f32::from_bits((127 + 120) << 23);
    let bits = if magnitude == 0x7f {
        0x7fc0_0000
    } else {
        finite.to_bits()
    };
    f32::from_bits(sign | bits)
}

/// An FNUZ type with `M` mantissa bits ("finite, NaN, unsigned zero"): the bias is one larger than OCP's, and the code of -0
/// is the only NaN.
#[inline(always)]
fn fnuz<const M: u32>(code: u8) -> f32 {
    let (sign, magnitude) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    let bias = 1 << (7 - M - 1);
    // multiplying corrects the exponent bias, and makes subnormals normal: see `e4m3`
    let finite = f32::from_bits(magnitude << (23 - M)) * f32::from_bits((127 + 127 - bias) << 23);
    f32::from_bits(if code == 0x80 {
        0x7fc0_0000
    } else {
        sign | finite.to_bits()
    })
}

/// A float of `bits` bits, `M` of them mantissa, with neither infinities nor NaN.
#[inline(always)]
fn small<const M: u32>(code: u8, bits: u32) -> f32 {
    let code = u32::from(code);
    let sign = (code >> (bits - 1) & 1) << 31;
    let magnitude = code & ((1 << (bits - 1)) - 1);
    let bias = (1 << (bits - 1 - M - 1)) - 1;
    let finite = f32::from_bits(magnitude << (23 - M)) * f32::from_bits((127 + 127 - bias) << 23);
    f32::from_bits(sign | finite.to_bits())
}

/// An E8M0 scale: 2^(code - 127), and NaN for 255.
#[inline(always)]
pub fn e8m0(code: u8) -> f32 {
    let e = u32::from(code);
    f32::from_bits(match e {
        // 2^-127 is below F32's smallest normal number, 2^-126: the top bit of the mantissa
        0 => 0x0040_0000,
        255 => 0x7fc0_0000,
        _ => e << 23,
    })
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // powers of two
mod tests {
    use super::*;

    /// The value by definition, in F64.
    fn by_definition(code: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
        let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
        let exponent = (code >> mantissa_bits & ((1 << exponent_bits) - 1)).cast_signed();
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            e => (1.0 + mantissa) * 2f64.powi(e - bias),
        };
        if code >> (exponent_bits + mantissa_bits) & 1 == 1 {
            -magnitude
        } else {
            magnitude
        }
    }

    fn values(value_: &CodeValue) -> [f32; 256] {
        let mut codes = [0; 256];
        codes.iter_mut().zip(0..=255).for_each(|(c, i)| *c = i);
        let mut out = [0.0; 256];
        value(value_, &codes, &mut out);
        out
    }

    #[test]
    fn narrow_floats_equal_their_definition() {
        for (kind, e, m, bias, nan) in [
            (CodeValue::E4m3, 4, 3, 7, &[0x7f, 0xff][..]),
            (
                CodeValue::E5m2,
                5,
                2,
                15,
                &[0x7c, 0x7d, 0x7e, 0x7f, 0xfc, 0xfd, 0xfe, 0xff],
            ),
            (CodeValue::E4m3Fnuz, 4, 3, 8, &[0x80]),
            (CodeValue::E5m2Fnuz, 5, 2, 16, &[0x80]),
        ] {
            for (code, found) in (0u32..).zip(values(&kind)) {
                if nan.contains(&code) {
                    assert!(!found.is_finite(), "{kind:?} {code:#x}");
                } else {
                    assert_eq!(
                        f64::from(found),
                        by_definition(code, e, m, bias),
                        "{kind:?} {code:#x}"
                    );
                }
            }
        }
        for (kind, e, m, bias) in [(CodeValue::E2m3, 2, 3, 1), (CodeValue::E3m2, 3, 2, 3)] {
            for (code, found) in (0u32..64).zip(values(&kind)) {
                assert_eq!(
                    f64::from(found),
                    by_definition(code, e, m, bias),
                    "{kind:?} {code:#x}"
                );
            }
        }
        for (code, found) in (0u32..).zip(E2M1_VALUES) {
            assert_eq!(f64::from(found), by_definition(code, 2, 1, 1));
        }
    }

    #[test]
    fn e8m0_decodes_to_a_power_of_two_or_nan() {
        for code in 0..255 {
            assert_eq!(f64::from(e8m0(code)), 2f64.powi(i32::from(code) - 127));
        }
        assert!(e8m0(255).is_nan());
    }
}
