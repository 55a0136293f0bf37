//! The stored numbers that a decoder reads, for comparisons with what a configuration says of them.

use crate::base::kernel::{CodePacking, CodeValue, E2M1_VALUES};

/// The stored numbers that a [`Decoder`](super::Decoder) reads as codes, and how many of them share a scale.
///
/// ```
/// use anamnesis::plan::{CodeNumbers, NumberKind};
///
/// // what a decoder of INT4 in groups of 128 reads
/// let numbers = CodeNumbers {
///     kind: NumberKind::Integer,
///     bits: 4,
///     is_packed: true,
///     block: Some((1, 128)),
/// };
/// assert_eq!(numbers.to_string(), "integers of 4 bits with a scale for each 1 by 128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeNumbers {
    /// The kind of numbers that the codes stand for.
    pub kind: NumberKind,
    /// Bits of a code.
    pub bits: u32,
    /// Whether codes of fewer than 8 bits share bytes or words.
    pub is_packed: bool,
    /// Rows and columns of the weight that share a scale; `u64::MAX` stands for all. `None` if there is no scale, or the groups
    /// ignore rows.
    pub block: Option<(u64, u64)>,
}

/// A kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// Integers.
    Integer,
    /// Narrow floats, by the name of their format, such as `E4M3`.
    Float(&'static str),
    /// Others, such as entries of a stored table.
    Other,
}

impl CodeNumbers {
    /// Numbers of these codes.
    pub(crate) fn new(packing: CodePacking, value: &CodeValue, block: Option<(u64, u64)>) -> Self {
        let (bits, is_packed) = match packing {
            CodePacking::Bytes => (8, false),
            CodePacking::LowNibbles | CodePacking::HighNibbles => (4, true),
            CodePacking::Stream(bits) | CodePacking::Words(bits) => (bits, bits < 8),
            CodePacking::Plane(word, _, bits) => (bits, bits < 8 && word == 1),
        };
        Self {
            kind: NumberKind::of(value),
            bits,
            is_packed,
            block,
        }
    }

    /// Integers of this many bits, several in a word.
    pub(crate) fn packed_integers(bits: u32, group: Option<u64>) -> Self {
        Self {
            kind: NumberKind::Integer,
            bits,
            is_packed: bits < 8,
            block: group.map(|group| (1, group)),
        }
    }
}

impl NumberKind {
    fn of(value: &CodeValue) -> Self {
        match value {
            CodeValue::E4m3 => Self::Float("E4M3"),
            CodeValue::E5m2 => Self::Float("E5M2"),
            CodeValue::E4m3Fnuz => Self::Float("E4M3FNUZ"),
            CodeValue::E5m2Fnuz => Self::Float("E5M2FNUZ"),
            CodeValue::E2m3 => Self::Float("E2M3"),
            CodeValue::E3m2 => Self::Float("E3M2"),
            CodeValue::Signed | CodeValue::Unsigned => Self::Integer,
            // some writers have no negative zero
            CodeValue::Table(table) if table[..] == E2M1_VALUES[..] => Self::Float("E2M1"),
            // gpt-oss' decoder halves the scales, of which the largest overflows
            CodeValue::Table(table) if table[..] == E2M1_VALUES.map(|value| value * 2.0)[..] => {
                Self::Float("E2M1")
            }
            CodeValue::Table(table) if table.iter().all(|value| value.fract() == 0.0) => {
                Self::Integer
            }
            CodeValue::Table(_) => Self::Other,
        }
    }
}

impl std::fmt::Display for CodeNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            NumberKind::Integer => write!(f, "integers of {} bits", self.bits)?,
            NumberKind::Float(name) => write!(f, "floats {name} of {} bits", self.bits)?,
            NumberKind::Other => write!(f, "codes of {} bits", self.bits)?,
        }
        match self.block {
            None => Ok(()),
            Some((u64::MAX, u64::MAX)) => write!(f, " with one scale"),
            Some((u64::MAX, cols)) => write!(f, " with a scale for each {cols} columns"),
            Some((rows, u64::MAX)) => write!(f, " with a scale for each {rows} rows"),
            Some((rows, cols)) => write!(f, " with a scale for each {rows} by {cols}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_codes_are_integers_or_floats() {
        let kind = |table: [f32; 16]| NumberKind::of(&CodeValue::Table(Box::new(table)));
        assert_eq!(kind(E2M1_VALUES), NumberKind::Float("E2M1"));
        let mut table = E2M1_VALUES;
        table[8] = 0.0;
        assert_eq!(kind(table), NumberKind::Float("E2M1"));
        let doubled = E2M1_VALUES.map(|value| value * 2.0);
        assert_eq!(kind(doubled), NumberKind::Float("E2M1"));
        assert_eq!(kind([3.0; 16]), NumberKind::Integer);
        assert_eq!(kind([0.25; 16]), NumberKind::Other);
    }
}
