//! Elements of every dtype that is a number, as F64.

use crate::base::kernel::Dtype;
use crate::base::kernel::{CodeValue, code_values, e8m0, from_bf16, from_f16};

/// Whether elements of this dtype are single numbers.
pub(super) fn is_number(dtype: Dtype) -> bool {
    // left out: elements that share bytes, are two numbers, or need a scale
    !matches!(
        dtype,
        Dtype::F4
            | Dtype::F6_E2M3
            | Dtype::F6_E3M2
            | Dtype::C32
            | Dtype::C64
            | Dtype::C128
            | Dtype::QINT8
            | Dtype::QUINT8
            | Dtype::QINT32
            | Dtype::QUINT4X2
            | Dtype::QUINT2X4
    )
}

/// Whether an F64 does not hold all elements of this dtype.
pub(super) fn is_wide_integer(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I64 | Dtype::U64)
}

/// Converts as many elements as `out` has. They must be [numbers](is_number).
pub(super) fn to_f64(dtype: Dtype, bytes: &[u8], out: &mut [f64]) {
    fn each<const N: usize>(bytes: &[u8], out: &mut [f64], value: impl Fn([u8; N]) -> f64) {
        for (item, out) in bytes.as_chunks::<N>().0.iter().zip(out) {
            *out = value(*item);
        }
    }
    match dtype {
        Dtype::BF16 => each(bytes, out, |b| from_bf16(b).into()),
        Dtype::F16 => each(bytes, out, |b| from_f16(b).into()),
        Dtype::F32 => each(bytes, out, |b| f32::from_le_bytes(b).into()),
        Dtype::F64 => each(bytes, out, f64::from_le_bytes),
        Dtype::BOOL => each(bytes, out, |[b]| f64::from(u8::from(b != 0))),
        Dtype::I16 => each(bytes, out, |b| i16::from_le_bytes(b).into()),
        Dtype::U16 => each(bytes, out, |b| u16::from_le_bytes(b).into()),
        Dtype::I32 => each(bytes, out, |b| i32::from_le_bytes(b).into()),
        Dtype::U32 => each(bytes, out, |b| u32::from_le_bytes(b).into()),
        #[allow(clippy::cast_precision_loss)] // a measure; equality is computed exactly
        Dtype::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f64),
        #[allow(clippy::cast_precision_loss)] // as above
        Dtype::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f64),
        Dtype::F8_E8M0 => each(bytes, out, |[code]| e8m0(code).into()),
        dtype => {
            let values = CodeValue::of(dtype).map(|value| code_values(&value, bytes));
            for (value, out) in values.iter().flatten().zip(out) {
                *out = f64::from(*value);
            }
        }
    }
}

/// Element number `i`, if the dtype is one of integers.
pub(super) fn integer_at(dtype: Dtype, bytes: &[u8], i: usize) -> Option<i128> {
    fn at<const N: usize>(bytes: &[u8], i: usize) -> [u8; N] {
        bytes.as_chunks().0[i]
    }
    Some(match dtype {
        Dtype::BOOL => i128::from(bytes[i] != 0),
        Dtype::U8 => bytes[i].into(),
        Dtype::I8 => i8::from_le_bytes(at(bytes, i)).into(),
        Dtype::I16 => i16::from_le_bytes(at(bytes, i)).into(),
        Dtype::U16 => u16::from_le_bytes(at(bytes, i)).into(),
        Dtype::I32 => i32::from_le_bytes(at(bytes, i)).into(),
        Dtype::U32 => u32::from_le_bytes(at(bytes, i)).into(),
        Dtype::I64 => i64::from_le_bytes(at(bytes, i)).into(),
        Dtype::U64 => u64::from_le_bytes(at(bytes, i)).into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_converted() {
        for dtype in Dtype::all().filter(|dtype| is_number(*dtype)) {
            let one: Vec<u8> = match dtype {
                Dtype::BF16 => vec![0x80, 0x3f],
                Dtype::F16 => vec![0x00, 0x3c],
                Dtype::F32 => 1f32.to_le_bytes().to_vec(),
                Dtype::F64 => 1f64.to_le_bytes().to_vec(),
                Dtype::F8_E4M3 => vec![0x38],
                Dtype::F8_E5M2 => vec![0x3c],
                Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ => vec![0x40],
                Dtype::F8_E8M0 => vec![127],
                integer => {
                    let mut bytes = vec![0; integer.width()];
                    bytes[0] = 1;
                    assert_eq!(integer_at(integer, &bytes, 0), Some(1));
                    bytes
                }
            };
            let mut out = [0.0];
            to_f64(dtype, &one, &mut out);
            assert_eq!(out, [1.0], "{dtype}");
        }
    }
}
