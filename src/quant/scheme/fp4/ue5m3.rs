//! UE5M3 scales (AMD's FP4, AutoRound's `nvfp4_v2`): unsigned floats with 5 bits of exponent, bias 15, and 3 of mantissa.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// UE5M3 scales, read as F32.
#[derive(Debug)]
pub(crate) struct Ue5m3Scales {
    pub(crate) place: PartOffset,
    pub(crate) rows: u64,
    /// Scales of a row.
    pub(crate) groups: u64,
}

impl PartView for Ue5m3Scales {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.groups * 4)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        PartRanges::from_iter([self.place.of(PartRange::run(
            0,
            rows.start * self.groups..rows.end * self.groups,
        ))])
    }

    fn make(&self, _: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let pairs = inputs[0].bytes.iter().zip(out.as_chunks_mut().0);
        pairs.for_each(|(code, out)| *out = ue5m3(*code).to_le_bytes());
        Ok(())
    }
}

/// The value of a code; 255 is NaN. Exponent and mantissa are shifted to their places in F32; the multiplication by
/// 2^(127 - 15) corrects the bias and normalises subnormals.
fn ue5m3(code: u8) -> f32 {
    const BIAS: u32 = 15;
    match code {
        255 => f32::NAN,
        // the shift puts mantissa and exponent to the top of F32's fields; both operands are exact, and so is their
        // product
        _ => f32::from_bits(u32::from(code) << 20) * f32::from_bits((127 + 127 - BIAS) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::ue5m3;

    #[test]
    fn every_code_has_its_defined_value() {
        for code in 0..255u8 {
            let (exponent, mantissa) = (u64::from(code >> 3), f64::from(code & 7) / 8.0);
            // by its bits: `powi` may differ in the last one, and does under Miri
            let power = |exponent: u64| f64::from_bits((1023 - 15 + exponent) << 52);
            let value = if exponent == 0 {
                mantissa * power(1)
            } else {
                (1.0 + mantissa) * power(exponent)
            };
            assert!(f64::from(ue5m3(code)) == value, "{code}");
        }
        assert!(ue5m3(255).is_nan());
    }
}
