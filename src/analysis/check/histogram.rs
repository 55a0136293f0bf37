//! Counts of the values of 16-bit dtypes by their bits, from which percentiles and moments follow exactly.

use half::{bf16, f16};

use crate::base::kernel::Dtype;
use crate::base::limits::zeroed_numbers;

/// Bins by the bits of a 16-bit number.
const BINS: usize = 1 << 16;

/// How values are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinForm {
    Bf16,
    F16,
}

impl BinForm {
    /// The form of a dtype; `None` if its values are not of 16 bits.
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// Bytes of the counts.
    pub(super) const NBYTES: u64 = (BINS * size_of::<u32>()) as u64;

    /// The value of a bin.
    fn value(self, bin: usize) -> f64 {
        let bits = low(bin);
        match self {
            Self::Bf16 => f64::from(bf16::from_bits(bits)),
            Self::F16 => f64::from(f16::from_bits(bits)),
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // bins are below 2¹⁶
fn low(bin: usize) -> u16 {
    bin as u16
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
            counts: zeroed_numbers(BINS)?,
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
        let counts: &mut [u32; BINS] = match self.counts.as_mut_slice().try_into() {
            Ok(counts) => counts,
            Err(_) => return,
        };
        for word in bytes.as_chunks::<2>().0 {
            // an array of all bins: the index needs no check in the loop
            counts[usize::from(u16::from_le_bytes(*word))] += 1;
        }
        self.counted += (bytes.len() / 2) as u64;
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
            // totals have 64 bits: an output may have more than 2³² equal values
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
            totals: zeroed_numbers(BINS)?,
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
        let mut histogram = Histogram::new(BinForm::Bf16).unwrap();
        let values = [-3.5, -0.0, 0.5, 0.5, 96.0, f32::INFINITY, f32::NAN];
        let words = values.map(|value| bf16::from_f32(value).to_le_bytes());
        histogram.count_16(words.as_flattened());
        let mut distribution = Distribution::new(BinForm::Bf16).unwrap();
        histogram.add_to(distribution.totals());
        let found: Vec<_> = distribution.values().collect();
        assert_eq!(found, [(-3.5, 1), (0.0, 1), (0.5, 2), (96.0, 1)]);
    }
}
