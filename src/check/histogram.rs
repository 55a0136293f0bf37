//! Counts of values by their bits, from which percentiles follow: exactly for 16-bit dtypes, by a bin for F32.

use half::{bf16, f16};

use crate::Dtype;
use crate::limits::zeroed_numbers;

/// Bins by the bits of a 16-bit number.
const BINS_16: usize = 1 << 16;
/// Bins by sign, exponent and the first 11 bits of the mantissa of an F32.
const BINS_32: usize = 1 << 20;
/// Bits of an F32 that its bin does not have.
const DROPPED: u32 = 12;

/// How values are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinForm {
    Bf16,
    F16,
    /// F32, and what is converted to it.
    F32,
}

impl BinForm {
    /// The form of values of a dtype, as they are converted.
    pub(super) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::BF16 => Self::Bf16,
            Dtype::F16 => Self::F16,
            _ => Self::F32,
        }
    }

    fn bins(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => BINS_16,
            Self::F32 => BINS_32,
        }
    }

    /// Bytes of the counts.
    pub(super) fn nbytes(self) -> u64 {
        (self.bins() * size_of::<u32>()) as u64
    }

    /// Whether each value has a bin of its own.
    pub(super) fn is_exact(self) -> bool {
        self != Self::F32
    }

    /// The value of a bin: of several, the one in the middle.
    fn value(self, bin: usize) -> f64 {
        let bits = u32::try_from(bin).unwrap_or(u32::MAX);
        match self {
            Self::Bf16 => f64::from(bf16::from_bits(low(bits))),
            Self::F16 => f64::from(f16::from_bits(low(bits))),
            // the bin of zero has no middle: almost all of its numbers are zero
            Self::F32 if bits << DROPPED << 1 == 0 => 0.0,
            Self::F32 => f64::from(f32::from_bits(bits << DROPPED | 1 << (DROPPED - 1))),
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // bins of 16-bit forms are below 2¹⁶
fn low(bits: u32) -> u16 {
    bits as u16
}

/// Counts of an output's values, or of a part of them.
#[derive(Debug)]
pub(super) struct Histogram {
    pub(super) form: BinForm,
    counts: Vec<u32>,
    /// Values that were counted; below 2³², so that no count overflows.
    counted: u64,
}

impl Histogram {
    /// An empty one; `None` if there is no memory for it.
    pub(super) fn new(form: BinForm) -> Option<Self> {
        Some(Self {
            form,
            counts: zeroed_numbers(form.bins())?,
            counted: 0,
        })
    }

    /// How many values may still be counted.
    pub(super) fn room(&self) -> u64 {
        u64::from(u32::MAX) - self.counted
    }

    pub(super) fn clear(&mut self) {
        if self.counted > 0 {
            self.counts.fill(0);
        }
        self.counted = 0;
    }

    /// Counts 16-bit values.
    pub(super) fn count_16(&mut self, bytes: &[u8]) {
        let counts: &mut [u32; BINS_16] = match self.counts.as_mut_slice().try_into() {
            Ok(counts) => counts,
            Err(_) => return,
        };
        for word in bytes.as_chunks::<2>().0 {
            counts[usize::from(u16::from_le_bytes(*word))] += 1;
        }
        self.counted += (bytes.len() / 2) as u64;
    }

    /// Counts little-endian F32 values.
    pub(super) fn count_32(&mut self, bytes: &[u8]) {
        let counts: &mut [u32; BINS_32] = match self.counts.as_mut_slice().try_into() {
            Ok(counts) => counts,
            Err(_) => return,
        };
        for word in bytes.as_chunks::<4>().0 {
            // in range: 32 bits less 12
            counts[(u32::from_le_bytes(*word) >> DROPPED) as usize & (BINS_32 - 1)] += 1;
        }
        self.counted += (bytes.len() / 4) as u64;
    }

    /// Adds the counts of another part; both together have counted what fits 32 bits.
    pub(super) fn join(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.counted = self.counted.saturating_add(other.counted);
    }

    /// Adds the counts of another part to totals, which are as long as there are bins.
    pub(super) fn add_to(&self, totals: &mut [u64]) {
        for (total, count) in totals.iter_mut().zip(&self.counts) {
            *total += u64::from(*count);
        }
    }
}

/// The finite values of an output in ascending order, each with its count.
#[derive(Debug)]
pub(super) struct Distribution {
    form: BinForm,
    totals: Vec<u64>,
}

impl Distribution {
    pub(super) fn new(form: BinForm) -> Option<Self> {
        Some(Self {
            form,
            totals: zeroed_numbers(form.bins())?,
        })
    }

    pub(super) fn totals(&mut self) -> &mut [u64] {
        &mut self.totals
    }

    /// Values that occur, ascending, with their counts.
    pub(super) fn values(&self) -> impl Iterator<Item = (f64, u64)> + Clone + '_ {
        let half = self.totals.len() / 2;
        // bits ascend with the magnitude, so negative numbers descend
        let ascending = (half..self.totals.len()).rev().chain(0..half);
        ascending
            .filter(|&bin| self.totals[bin] > 0)
            .map(|bin| (self.form.value(bin), self.totals[bin]))
            .filter(|(value, _)| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_ascend_and_bins_hold_them() {
        let mut histogram = Histogram::new(BinForm::F32).unwrap();
        let values = [
            -3.5f32,
            -1e-30,
            0.0,
            1e-30,
            0.1,
            0.1,
            7.25e8,
            f32::INFINITY,
            f32::NAN,
        ];
        histogram.count_32(values.map(f32::to_le_bytes).as_flattened());
        let mut distribution = Distribution::new(BinForm::F32).unwrap();
        histogram.add_to(distribution.totals());
        let found: Vec<_> = distribution.values().collect();
        assert!(
            found.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "{found:?}"
        );
        assert_eq!(found.iter().map(|(_, n)| n).sum::<u64>(), 7);
        for (found, value) in found.iter().zip([-3.5, -1e-30, 0.0, 1e-30, 0.1, 7.25e8]) {
            assert!(
                (found.0 - value).abs() <= value.abs() / 2048.0,
                "{found:?} {value}"
            );
        }
    }
}
