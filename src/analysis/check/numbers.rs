//! Numbers of any dtype as floats.

use half::{bf16, f16};

use crate::base::kernel::Dtype;

/// Numbers of a batch: they stay in the first-level cache while they are converted, counted and summed.
const BATCH: usize = 2048;

/// Numbers as F32.
pub(super) struct Numbers;

impl Numbers {
    /// Calls `each` with the numbers of these bytes as little-endian F32, batch by batch. Nothing where they are no numbers.
    pub(super) fn each((dtype, bytes): (Dtype, &[u8]), each: &mut dyn FnMut(&[u8])) {
        let width = dtype.width();
        // no conversion: the stored bytes are passed on as they are
        if dtype == Dtype::F32 {
            return bytes.chunks(BATCH * width).for_each(each);
        }
        if width == 0 {
            return;
        }
        let mut values = [0.0f64; BATCH];
        let mut made = [[0; 4]; BATCH];
        for batch in bytes.chunks(BATCH * width) {
            let count = batch.len() / width;
            number_values(dtype, batch, &mut values[..count]);
            for (made, value) in made.iter_mut().zip(&values[..count]) {
                #[allow(clippy::cast_possible_truncation)] // to the nearest: see `rounding`
                {
                    *made = (*value as f32).to_le_bytes();
                }
            }
            each(made[..count].as_flattened());
        }
    }

    /// The rounding of a number of this dtype as an F32, relative to its value.
    pub(super) fn rounding(dtype: Dtype) -> f64 {
        match dtype {
            Dtype::F64
            | Dtype::I32
            | Dtype::QINT32
            | Dtype::U32
            | Dtype::I64
            | Dtype::U64
            | Dtype::C32
            | Dtype::C64 => f64::from(f32::EPSILON),
            _ => 0.0,
        }
    }

    /// The magnitude from which on values count as close to the end of the dtype's range.
    pub(super) fn huge(dtype: Dtype) -> f32 {
        match dtype {
            Dtype::F16 | Dtype::C32 => 16_384.0,
            // a quarter of the range of F32 and BF16, as 16,384 is of F16
            _ => 2f32.powi(126),
        }
    }
}

/// The numbers of these bytes; of complex ones the magnitude. NaN where they are no numbers.
pub(super) fn number_values(dtype: Dtype, bytes: &[u8], out: &mut [f64]) {
    macro_rules! words {
        ($width:literal, $value:expr) => {
            for (out, word) in out.iter_mut().zip(bytes.as_chunks::<$width>().0) {
                *out = $value(*word);
            }
        };
    }
    #[allow(clippy::cast_precision_loss)] // integers above 2⁵³ are rounded
    match dtype {
        Dtype::BF16 => words!(2, |w| f64::from(bf16::from_le_bytes(w))),
        Dtype::F16 => words!(2, |w| f64::from(f16::from_le_bytes(w))),
        Dtype::F32 => words!(4, |w| f64::from(f32::from_le_bytes(w))),
        Dtype::F64 => words!(8, f64::from_le_bytes),
        Dtype::BOOL | Dtype::U8 | Dtype::QUINT8 => words!(1, |[b]: [u8; 1]| f64::from(b)),
        Dtype::I8 | Dtype::QINT8 => words!(1, |w| f64::from(i8::from_le_bytes(w))),
        Dtype::I16 => words!(2, |w| f64::from(i16::from_le_bytes(w))),
        Dtype::U16 => words!(2, |w| f64::from(u16::from_le_bytes(w))),
        Dtype::I32 | Dtype::QINT32 => words!(4, |w| f64::from(i32::from_le_bytes(w))),
        Dtype::U32 => words!(4, |w| f64::from(u32::from_le_bytes(w))),
        Dtype::I64 => words!(8, |w| i64::from_le_bytes(w) as f64),
        Dtype::U64 => words!(8, |w| u64::from_le_bytes(w) as f64),
        // 255 is not a number, and codes are exponents
        Dtype::F8_E8M0 => words!(1, |[b]: [u8; 1]| match b {
            255 => f64::NAN,
            code => 2f64.powi(i32::from(code) - 127),
        }),
        Dtype::C64 => words!(8, |[a, b, c, d, e, f, g, h]: [u8; 8]| {
            f64::from(f32::from_le_bytes([a, b, c, d]))
                .hypot(f64::from(f32::from_le_bytes([e, f, g, h])))
        }),
        Dtype::F8_E4M3 => words!(1, |[code]: [u8; 1]| match code & 0x7f {
            0x7f => f64::NAN,
            _ => small_float(code, 3, 7),
        }),
        Dtype::F8_E5M2 => words!(1, |[code]: [u8; 1]| match code & 0x7f {
            0x7c => f64::INFINITY.copysign(if code < 0x80 { 1.0 } else { -1.0 }),
            0x7d..=0x7f => f64::NAN,
            _ => small_float(code, 2, 15),
        }),
        Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ => words!(1, |[code]: [u8; 1]| match code {
            0x80 => f64::NAN,
            _ if dtype == Dtype::F8_E4M3FNUZ => small_float(code, 3, 8),
            _ => small_float(code, 2, 16),
        }),
        // counted as no number, so that a dtype that is missing here shows
        _ => out.fill(f64::NAN),
    }
}

/// A finite number of 8 bits, of which `mantissa` are the mantissa, with this bias of the exponent.
fn small_float(code: u8, mantissa: u32, bias: i32) -> f64 {
    let exponent = i32::from((code & 0x7f) >> mantissa);
    let fraction = f64::from(code & ((1 << mantissa) - 1)) / f64::from(1u32 << mantissa);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
    };
    if code < 0x80 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_numbers() {
        let mut out = [0.0; 3];
        number_values(Dtype::F8_E4M3, &[0x38, 0x7f, 0x80], &mut out);
        assert_eq!(out[0], 1.0);
        assert!(out[1].is_nan() && out[2] == 0.0);
        number_values(Dtype::F8_E4M3, &[0x7e, 0x01, 0xb8], &mut out);
        assert_eq!(out, [448.0, 2f64.powi(-9), -1.0]);
        number_values(Dtype::F8_E5M2, &[0x7b, 0xfc, 0x01], &mut out);
        assert_eq!(out, [57_344.0, f64::NEG_INFINITY, 2f64.powi(-16)]);
        number_values(Dtype::F8_E4M3FNUZ, &[0x7f, 0x40, 0x01], &mut out);
        assert_eq!(out, [240.0, 1.0, 2f64.powi(-10)]);
        number_values(Dtype::F8_E8M0, &[127, 128, 255], &mut out);
        assert_eq!(out[..2], [1.0, 2.0]);
        assert!(out[2].is_nan());
        number_values(Dtype::I16, &[0xff, 0xff, 2, 0], &mut out[..2]);
        assert_eq!(out[..2], [-1.0, 2.0]);
    }
}
