//! What a code is worth.
//!
//! Sources: OCP 8-bit floating point (E4M3, E5M2), OCP Microscaling v1.0 (E2M1, E2M3, E3M2, E8M0), ONNX's
//! page on FP8 (the FNUZ types).

use super::half::from_f16;
use crate::dtype::Dtype;

/// What a code is worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
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
    /// A whole number with a sign.
    Signed,
    /// A whole number without.
    Unsigned,
    /// One of 16 values; FP4 is one such table.
    Table(Box<[f32; 16]>),
}

impl Value {
    /// That of the narrow floats and whole numbers that fill bytes.
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

/// The values of codes of one byte each.
pub fn values(kind: &Value, codes: &[u8]) -> Vec<f32> {
    let mut every = [0; 256];
    every
        .iter_mut()
        .zip(0..=255)
        .for_each(|(code, i)| *code = i);
    let mut table = [0.0; 256];
    value(kind, &every, &mut table);
    codes.iter().map(|code| table[usize::from(*code)]).collect()
}

/// FP4, E2M1: code 8 is -0.
pub const E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The values of some codes.
#[inline(always)]
pub(crate) fn value<const N: usize>(value: &Value, codes: &[u8; N], out: &mut [f32; N]) {
    macro_rules! each_is {
        (|$code:ident| $worth:expr) => {
            for ($code, out) in codes.iter().zip(out) {
                let $code = *$code;
                *out = $worth;
            }
        };
    }
    match value {
        Value::E4m3 => each_is!(|code| e4m3(code)),
        Value::E5m2 => each_is!(|code| from_f16([0, code])),
        Value::E4m3Fnuz => each_is!(|code| fnuz::<3>(code)),
        Value::E5m2Fnuz => each_is!(|code| fnuz::<2>(code)),
        Value::E2m3 => each_is!(|code| small::<3>(code, 6)),
        Value::E3m2 => each_is!(|code| small::<2>(code, 6)),
        Value::Signed => each_is!(|code| f32::from(code.cast_signed())),
        Value::Unsigned => each_is!(|code| f32::from(code)),
        Value::Table(table) => each_is!(|code| table[usize::from(code & 15)]),
    }
}

/// OCP E4M3: exponent and mantissa moved to where F32 has them, and a multiplication that sets the bias
/// and subnormals right.
#[inline(always)]
pub(crate) fn e4m3(code: u8) -> f32 {
    let (sign, magnitude) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    let finite = f32::from_bits(magnitude << 20) * f32::from_bits((127 + 120) << 23);
    let bits = if magnitude == 0x7f {
        0x7fc0_0000
    } else {
        finite.to_bits()
    };
    f32::from_bits(sign | bits)
}

/// The FNUZ types with `M` bits of mantissa: the bias is one more, and -0 is NaN.
#[inline(always)]
fn fnuz<const M: u32>(code: u8) -> f32 {
    let (sign, magnitude) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    let bias = 1 << (7 - M - 1);
    let finite = f32::from_bits(magnitude << (23 - M)) * f32::from_bits((127 + 127 - bias) << 23);
    f32::from_bits(if code == 0x80 {
        0x7fc0_0000
    } else {
        sign | finite.to_bits()
    })
}

/// A float of `bits` bits with `M` of mantissa, and neither infinities nor NaN.
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
        0 => 0x0040_0000,
        255 => 0x7fc0_0000,
        _ => e << 23,
    })
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // powers of two
mod tests {
    use super::*;

    /// The definition, in F64.
    fn defined(code: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
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

    fn values(value_: &Value) -> [f32; 256] {
        let mut codes = [0; 256];
        codes.iter_mut().zip(0..=255).for_each(|(c, i)| *c = i);
        let mut out = [0.0; 256];
        value(value_, &codes, &mut out);
        out
    }

    #[test]
    fn floats_are_those_of_their_definition() {
        for (kind, e, m, bias, nan) in [
            (Value::E4m3, 4, 3, 7, &[0x7f, 0xff][..]),
            (
                Value::E5m2,
                5,
                2,
                15,
                &[0x7c, 0x7d, 0x7e, 0x7f, 0xfc, 0xfd, 0xfe, 0xff],
            ),
            (Value::E4m3Fnuz, 4, 3, 8, &[0x80]),
            (Value::E5m2Fnuz, 5, 2, 16, &[0x80]),
        ] {
            for (code, found) in (0u32..).zip(values(&kind)) {
                if nan.contains(&code) {
                    assert!(!found.is_finite(), "{kind:?} {code:#x}");
                } else {
                    assert_eq!(
                        f64::from(found),
                        defined(code, e, m, bias),
                        "{kind:?} {code:#x}"
                    );
                }
            }
        }
        for (kind, e, m, bias) in [(Value::E2m3, 2, 3, 1), (Value::E3m2, 3, 2, 3)] {
            for (code, found) in (0u32..64).zip(values(&kind)) {
                assert_eq!(
                    f64::from(found),
                    defined(code, e, m, bias),
                    "{kind:?} {code:#x}"
                );
            }
        }
        for (code, found) in (0u32..).zip(E2M1) {
            assert_eq!(f64::from(found), defined(code, 2, 1, 1));
        }
    }

    #[test]
    fn e8m0_is_a_power_of_two() {
        for code in 0..255 {
            assert_eq!(f64::from(e8m0(code)), 2f64.powi(i32::from(code) - 127));
        }
        assert!(e8m0(255).is_nan());
    }
}
