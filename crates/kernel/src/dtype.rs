//! Element types of plain tensors, those that are not stored in blocks.

use std::fmt;

/// An element type of fixed width, named as in safetensors and PyTorch.
///
/// ```
/// use anamnesis_kernel::Dtype;
/// assert_eq!(Dtype::from_name("F8_E4M3"), Some(Dtype::F8_E4M3));
/// assert_eq!(Dtype::F4.bits(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, missing_docs)] // the field's own names, each a row of DTYPES
#[non_exhaustive]
pub enum Dtype {
    BOOL,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C32,
    C64,
    F64,
    I64,
    U64,
    C128,
    QINT8,
    QUINT8,
    QINT32,
    QUINT4X2,
    QUINT2X4,
}

/// Properties of a dtype.
struct Properties {
    dtype: Dtype,
    name: &'static str,
    bits: u8,
    /// Bytes that a change of byte order reverses together: half of the element for complex numbers.
    unit: u8,
}

macro_rules! rows {
    ($($dtype:ident $bits:literal $unit:literal),* $(,)?) => {
        &[$(Properties { dtype: Dtype::$dtype, name: stringify!($dtype), bits: $bits, unit: $unit }),*]
    };
}

/// `name bits unit`, in the order of the enum: `DTYPES[d as usize]` is the row of `d`.
static DTYPES: &[Properties] = rows![
    BOOL 8 1, F4 4 1, F6_E2M3 6 1, F6_E3M2 6 1, U8 8 1, I8 8 1,
    F8_E5M2 8 1, F8_E4M3 8 1, F8_E8M0 8 1, F8_E4M3FNUZ 8 1, F8_E5M2FNUZ 8 1,
    I16 16 2, U16 16 2, F16 16 2, BF16 16 2, I32 32 4, U32 32 4, F32 32 4,
    C32 32 2, C64 64 4, F64 64 8, I64 64 8, U64 64 8, C128 128 8,
    QINT8 8 1, QUINT8 8 1, QINT32 32 4, QUINT4X2 4 1, QUINT2X4 2 1,
];

impl Dtype {
    fn row(self) -> &'static Properties {
        let row = &DTYPES[self as usize];
        debug_assert!(row.dtype == self);
        row
    }

    /// The name as in safetensors headers, such as `BF16`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Width of one element in bits: 2, 4, 6, 8, 16, 32, 64 or 128.
    pub fn bits(self) -> u64 {
        u64::from(self.row().bits)
    }

    /// Width of one element in bytes, unless elements share bytes (F4, F6, QUINT4X2, QUINT2X4).
    pub fn item_bytes(self) -> Option<u64> {
        self.bits().is_multiple_of(8).then(|| self.bits() / 8)
    }

    /// Bytes of one element; 0 if elements share bytes.
    pub fn width(self) -> usize {
        usize::from(self.row().bits) / 8
    }

    /// Bytes that a change of byte order reverses together.
    pub fn swap_unit(self) -> u32 {
        u32::from(self.row().unit)
    }

    /// Bytes of `elements` elements; `None` if they end inside a byte or the number exceeds 64 bits. PyTorch's QUINT4X2 and
    /// QUINT2X4 may end inside a byte, which counts as whole.
    pub fn nbytes(self, elements: u64) -> Option<u64> {
        // in 128 bits: the number of elements comes from a file
        let bits = u128::from(elements) * u128::from(self.bits());
        if !bits.is_multiple_of(8) && !matches!(self, Self::QUINT4X2 | Self::QUINT2X4) {
            return None;
        }
        u64::try_from(bits.div_ceil(8)).ok()
    }

    /// The dtype with this name (exact spelling).
    pub fn from_name(name: &str) -> Option<Self> {
        DTYPES
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.dtype)
    }

    /// All dtypes, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Self> {
        DTYPES.iter().map(|row| row.dtype)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Dtype {
    fn serialize<S: serde::Serializer>(&self, simd: S) -> Result<S::Ok, S::Error> {
        simd.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_enum_order_and_finds_every_name() {
        for (i, row) in DTYPES.iter().enumerate() {
            assert_eq!(row.dtype as usize, i, "{}", row.name);
            assert_eq!(Dtype::from_name(row.name), Some(row.dtype));
        }
    }

    #[test]
    fn nbytes_refuses_a_partial_byte_and_overflow() {
        assert_eq!(Dtype::F4.nbytes(3), None);
        assert_eq!(Dtype::F4.nbytes(4), Some(2));
        assert_eq!(Dtype::F6_E2M3.nbytes(4), Some(3));
        assert_eq!(Dtype::QUINT4X2.nbytes(3), Some(2));
        assert_eq!(Dtype::QUINT2X4.nbytes(5), Some(2));
        assert_eq!(Dtype::F64.nbytes(u64::MAX), None);
        assert_eq!(Dtype::C128.nbytes(2), Some(32));
    }
}
