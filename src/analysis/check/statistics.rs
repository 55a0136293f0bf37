//! Statistics of values: sums in f64 over tiles that are added in order, so that the result is the same for any number of
//! threads; and percentiles.

use serde::Serialize;

use crate::base::kernel::NumberSums;

use super::histogram::Distribution;
use super::sample::SampleRanks;

/// Statistics of the values of a weight. Minimum, maximum, mean, standard deviation and percentiles count the finite values,
/// and are `None` if there are none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ValueStatistics {
    /// How many there are.
    pub elements: u64,
    /// Values that are not numbers.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Values below the normal range of the dtype.
    pub denormal: u64,
    /// Zeros of either sign.
    pub zeros: u64,
    /// The least.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation of the population.
    pub std: Option<f64>,
    /// The greatest magnitude.
    pub abs_max: Option<f64>,
    /// Percentiles, with linear interpolation between neighbours.
    pub percentiles: Option<Percentiles>,
    /// How many finite values the percentiles rest on: all of them, or a sample of the values of a large tensor that is decoded
    /// to F32.
    pub sampled: u64,
    /// Width of the bins that percentiles were found in, relative to the value: of what F32 rounds. 0 if nothing is rounded.
    pub bin_width: f64,
}

/// Values below which a share of all values is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// 0.1 %.
    #[serde(rename = "0.1")]
    pub p0_1: f64,
    /// 1 %.
    #[serde(rename = "1")]
    pub p1: f64,
    /// Half.
    #[serde(rename = "50")]
    pub p50: f64,
    /// 99 %.
    #[serde(rename = "99")]
    pub p99: f64,
    /// 99.9 %.
    #[serde(rename = "99.9")]
    pub p99_9: f64,
}

/// The shares of [`Percentiles`], in thousandths.
const SHARES: [u64; 5] = [1, 10, 500, 990, 999];

/// Number, mean and sum of squared deviations, and the range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ValueMoments {
    pub(super) n: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for ValueMoments {
    fn default() -> Self {
        Self {
            n: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl From<NumberSums> for ValueMoments {
    fn from(sums: NumberSums) -> Self {
        if sums.n == 0 {
            return Self::default();
        }
        let count = sums.n as f64;
        Self {
            n: sums.n,
            mean: f64::from(sums.shift) + sums.sum / count,
            // rounding may leave a little less than nothing, of which there is no root
            squares: (sums.squares - sums.sum * (sums.sum / count)).max(0.0),
            min: sums.min.into(),
            max: sums.max.into(),
        }
    }
}

impl ValueMoments {
    /// The moments of values with counts; `values` is read twice.
    pub(super) fn of_counts(values: impl Iterator<Item = (f64, u64)> + Clone) -> Self {
        let mut all = Self::default();
        let mut sum = 0.0;
        for (value, count) in values.clone() {
            all.n += count;
            sum += value * count as f64;
            all.min = all.min.min(value);
            all.max = all.max.max(value);
        }
        if all.n > 0 {
            // two passes over at most 65,536 values: exact where one pass would cancel
            all.mean = sum / all.n as f64;
            for (value, count) in values {
                let deviation = value - all.mean;
                all.squares += deviation * deviation * count as f64;
            }
        }
        all
    }

    /// Adds the values that follow.
    pub(super) fn append(&mut self, next: &Self) {
        if next.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = *next;
            return;
        }
        let (own, added) = (self.n as f64, next.n as f64);
        let (all, distance) = (own + added, next.mean - self.mean);
        // the update of Chan, Golub and LeVeque, which loses no digits where both means are large
        self.mean += distance * (added / all);
        self.squares += next.squares + distance * distance * (own * added / all);
        self.n += next.n;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }

    /// The standard deviation of the population.
    pub(super) fn std(&self) -> Option<f64> {
        (self.n > 0).then(|| (self.squares / self.n as f64).sqrt())
    }

    /// Writes what it knows into statistics.
    pub(super) fn fill(&self, statistics: &mut ValueStatistics) {
        if self.n == 0 {
            return;
        }
        (statistics.min, statistics.max) = (Some(self.min), Some(self.max));
        statistics.abs_max = Some(self.min.abs().max(self.max.abs()));
        (statistics.mean, statistics.std) = (Some(self.mean), self.std());
    }
}

impl Percentiles {
    /// The percentiles of values that are sorted.
    pub(super) fn of_sorted(values: &[f64]) -> Option<Self> {
        let last = values.len().checked_sub(1)? as u64;
        let at = |rank: u64| {
            usize::try_from(rank)
                .ok()
                .and_then(|at| values.get(at))
                .copied()
        };
        Self::by_rank(last, at)
    }

    /// The percentiles of counted values, `n` in all.
    pub(super) fn of_counts(distribution: &Distribution, n: u64) -> Option<Self> {
        let last = n.checked_sub(1)?;
        let mut found: Vec<(u64, f64)> = Vec::new();
        let (mut passed, mut next) = (0, ranks(last).into_iter().peekable());
        for (value, count) in distribution.values() {
            passed += count;
            // several ranks may be of one value
            while let Some(rank) = next.next_if(|rank| *rank < passed) {
                found.push((rank, value));
            }
        }
        Self::of_ranked(last, &found)
    }

    /// The percentiles of the finite values of a sample.
    pub(super) fn of_sample(counted: SampleRanks, sample: &mut Vec<u32>) -> Option<Self> {
        let last = counted.finite().checked_sub(1)?;
        let wanted = ranks(last);
        let values = counted.values(&wanted, sample);
        let found: Vec<(u64, f64)> = wanted.into_iter().zip(values).collect();
        Self::of_ranked(last, &found)
    }

    fn of_ranked(last: u64, found: &[(u64, f64)]) -> Option<Self> {
        Self::by_rank(last, |rank| {
            let at = found.iter().find(|(known, _)| *known == rank);
            at.map(|(_, value)| *value)
        })
    }

    fn by_rank(last: u64, value: impl Fn(u64) -> Option<f64>) -> Option<Self> {
        let of = |share| {
            let (rank, part) = rank(last, share);
            let low = value(rank)?;
            let high = if rank < last { value(rank + 1)? } else { low };
            // as numpy: from the nearer neighbour, so that the ends are exact
            Some(if part < 0.5 {
                low + (high - low) * part
            } else {
                high - (high - low) * (1.0 - part)
            })
        };
        let [p0_1, p1, p50, p99, p99_9] = SHARES.map(of);
        Some(Self {
            p0_1: p0_1?,
            p1: p1?,
            p50: p50?,
            p99: p99?,
            p99_9: p99_9?,
        })
    }
}

/// The ranks that percentiles are between, ascending.
fn ranks(last: u64) -> Vec<u64> {
    let mut wanted: Vec<u64> = SHARES
        .iter()
        .flat_map(|share| {
            let (rank, _) = rank(last, *share);
            [rank, rank.saturating_add(1).min(last)]
        })
        .collect();
    wanted.sort_unstable();
    wanted
}

/// The rank of a share in thousandths, and how far the percentile is on the way to the next one.
fn rank(last: u64, share: u64) -> (u64, f64) {
    // in integers: ranks of 2⁵³ and more are not exact in F64
    let scaled = u128::from(last) * u128::from(share);
    let whole = u64::try_from(scaled / 1000).unwrap_or(last);
    (whole, (scaled % 1000) as f64 / 1000.0)
}
