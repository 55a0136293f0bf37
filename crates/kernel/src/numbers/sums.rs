//! Sums of F32 values as deviations from the first of them.

use crate::isa::{Computation, compute};

use super::BATCH;

/// Sums of F32 values, for mean and deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NumberSums {
    /// How many were summed.
    pub n: u64,
    /// The number that deviations are from: the first number, so that no digits are lost where the mean is large; or 0.
    pub shift: f32,
    /// The sum of the deviations from `shift`.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
    /// The least value.
    pub min: f32,
    /// The greatest value.
    pub max: f32,
}

/// Sums the little-endian F32 values whose magnitude is below `limit`, in F64 and in an order that no build changes.
pub fn sum_f32(bytes: &[u8], limit: f32) -> NumberSums {
    compute(SumF32 { bytes, limit })
}

/// Sums that are computed side by side.
const LANES: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct SumF32<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) limit: f32,
}

impl Computation for SumF32<'_> {
    type Output = NumberSums;

    #[inline(always)]
    fn run(self) -> NumberSums {
        let values = self.bytes.as_chunks::<4>().0;
        let mut shift = None;
        for value in values {
            let value = f32::from_le_bytes(*value);
            if value.abs() < self.limit {
                shift = Some(value);
                break;
            }
        }
        let Some(shift) = shift else {
            return NumberSums::default();
        };
        let mut n = 0;
        let mut sums = [0.0f64; LANES];
        let mut squares = [0.0f64; LANES];
        let (mut least, mut most) = ([shift; LANES], [shift; LANES]);
        let (whole, rest) = values.as_chunks::<LANES>();
        // the last values, and ones that add nothing
        let mut last = [shift.to_le_bytes(); LANES];
        last[..rest.len()].copy_from_slice(rest);
        let padding = LANES - rest.len();
        let last = [last];
        for batch in whole.chunks(BATCH).chain([&last[..]]) {
            let mut counted = [0u32; LANES];
            for chunk in batch {
                add(
                    chunk,
                    shift,
                    self.limit,
                    &mut counted,
                    &mut sums,
                    &mut squares,
                    &mut least,
                    &mut most,
                );
            }
            for lane in counted {
                n += u64::from(lane);
            }
        }
        let mut all = NumberSums {
            // padding is below the limit too, and was counted
            n: n - padding as u64,
            shift,
            sum: 0.0,
            squares: 0.0,
            min: shift,
            max: shift,
        };
        for lane in 0..LANES {
            all.sum += sums[lane];
            all.squares += squares[lane];
            all.min = all.min.min(least[lane]);
            all.max = all.max.max(most[lane]);
        }
        all
    }
}

/// Adds one value per lane. A value that is not below the limit is replaced by one that adds nothing.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // a struct of arrays is not kept in registers
fn add(
    chunk: &[[u8; 4]; LANES],
    shift: f32,
    limit: f32,
    counted: &mut [u32; LANES],
    sums: &mut [f64; LANES],
    squares: &mut [f64; LANES],
    least: &mut [f32; LANES],
    most: &mut [f32; LANES],
) {
    for lane in 0..LANES {
        let value = f32::from_le_bytes(chunk[lane]);
        let counts = value.abs() < limit;
        counted[lane] += u32::from(counts);
        let value = if counts { value } else { shift };
        let deviation = f64::from(value) - f64::from(shift);
        sums[lane] += deviation;
        squares[lane] += deviation * deviation;
        least[lane] = if value < least[lane] {
            value
        } else {
            least[lane]
        };
        most[lane] = if value > most[lane] {
            value
        } else {
            most[lane]
        };
    }
}
