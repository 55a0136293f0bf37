//! Counts and sums of F32 values, batch by batch in the first-level cache.
//!
//! Most values are zeros and numbers of the middle of the range. A survey of a batch finds that out with few operations: the
//! greatest words as signed and as unsigned numbers, which are the greatest and the least value as well, and the words
//! without an exponent. Only a batch with other values is counted by their kinds.
//!
//! Sums are taken of the values and of their squares. The square of an F32 is exact in F64, so that builds which multiply
//! and add in one instruction and builds which do not have the same result.

use crate::isa::{Computation, compute};

use super::sums::{NumberSums, sum_f32};
use super::{FloatBits, NumberCounts, floats_32};

/// Values of a batch: 16 KiB.
const BATCH: usize = 4096;
/// Sums that are computed side by side: two registers of eight, so that an addition need not wait for the one before.
const LANES: usize = 16;
/// The square of the mean over the variance from which on sums are computed again: the quotient loses six bits of 53.
const FAR: f64 = 64.0;

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = FloatBits::F32.infinity as u32;
const HUGE: u32 = FloatBits::F32.huge as u32;

/// Does the work of [`count_floats`](super::count_floats) for F32 and of [`sum_f32`] for all finite values, batch by batch.
/// Sums are in F64 and in an order that no build changes.
///
/// # Examples
/// ```
/// let values = [3.0f32, f32::NAN, 0.0, -4.0].map(f32::to_le_bytes);
/// let (counts, sums) = anamnesis_kernel::count_and_sum_f32(values.as_flattened());
/// assert_eq!((counts.nan, counts.zeros), (1, 1));
/// assert_eq!((sums.n, sums.min, sums.max), (3, -4.0, 3.0));
/// assert_eq!(sums.sum + f64::from(sums.shift) * 3.0, -1.0);
/// ```
pub fn count_and_sum_f32(bytes: &[u8]) -> (NumberCounts, NumberSums) {
    let (counts, sums) = compute(CountAndSum { bytes });
    let mean_square = sums.sum * sums.sum / sums.n.max(1) as f64;
    if mean_square > FAR * (sums.squares - mean_square) {
        return (counts, sum_f32(bytes, f32::INFINITY));
    }
    (counts, sums)
}

/// The counts alone.
#[inline(always)]
pub(super) fn count(bytes: &[u8]) -> NumberCounts {
    let (words, _) = bytes.as_chunks::<4>();
    let mut counts = NumberCounts::default();
    for batch in words.chunks(BATCH) {
        let survey = BatchSurvey::of(batch);
        survey.count(batch, words[0], &mut counts);
    }
    counts
}

#[derive(Clone, Copy)]
pub(super) struct CountAndSum<'b> {
    pub(super) bytes: &'b [u8],
}

impl Computation for CountAndSum<'_> {
    type Output = (NumberCounts, NumberSums);

    #[inline(always)]
    fn run(self) -> Self::Output {
        count_and_sum::<false>(self.bytes)
    }

    #[inline(always)]
    fn run_fused(self) -> Self::Output {
        count_and_sum::<true>(self.bytes)
    }
}

#[inline(always)]
fn count_and_sum<const FUSED: bool>(bytes: &[u8]) -> (NumberCounts, NumberSums) {
    let (words, _) = bytes.as_chunks::<4>();
    let mut counts = NumberCounts::default();
    let mut sums = [0.0; LANES];
    let mut squares = [0.0; LANES];
    let mut range = ValueRange {
        least: f32::INFINITY,
        most: f32::NEG_INFINITY,
    };
    for batch in words.chunks(BATCH) {
        let survey = BatchSurvey::of(batch);
        survey.count(batch, words[0], &mut counts);
        if survey.is_finite() {
            range.add_survey(&survey, batch);
            add_batch::<FUSED>(batch, &mut sums, &mut squares);
        } else {
            // zeros add nothing, in the place of numbers that are not finite
            let mut finite = [[0; 4]; BATCH];
            for (finite, word) in finite.iter_mut().zip(batch) {
                let value = f32::from_le_bytes(*word);
                if value.is_finite() {
                    *finite = *word;
                    range.add_value(value);
                }
            }
            add_batch::<FUSED>(&finite[..batch.len()], &mut sums, &mut squares);
        }
    }
    let n = words.len() as u64 - counts.nan - counts.inf;
    if n == 0 {
        return (counts, NumberSums::default());
    }
    let mut all = NumberSums {
        n,
        shift: 0.0,
        sum: 0.0,
        squares: 0.0,
        // the zero without a sign
        min: range.least + 0.0,
        max: range.most + 0.0,
    };
    for lane in 0..LANES {
        all.sum += sums[lane];
        all.squares += squares[lane];
    }
    (counts, all)
}

/// Adds finite values and their squares.
#[inline(always)]
fn add_batch<const FUSED: bool>(
    batch: &[[u8; 4]],
    sums: &mut [f64; LANES],
    squares: &mut [f64; LANES],
) {
    let mut batch_sums = [0.0; LANES];
    let mut batch_squares = [0.0; LANES];
    let (whole, rest) = batch.as_chunks::<LANES>();
    for chunk in whole {
        add::<FUSED>(chunk, &mut batch_sums, &mut batch_squares);
    }
    if !rest.is_empty() {
        let mut last = [[0; 4]; LANES];
        last[..rest.len()].copy_from_slice(rest);
        add::<FUSED>(&last, &mut batch_sums, &mut batch_squares);
    }
    for lane in 0..LANES {
        sums[lane] += batch_sums[lane];
        squares[lane] += batch_squares[lane];
    }
}

/// Adds one value per lane.
#[inline(always)]
fn add<const FUSED: bool>(
    chunk: &[[u8; 4]; LANES],
    sums: &mut [f64; LANES],
    squares: &mut [f64; LANES],
) {
    for lane in 0..LANES {
        let value = f64::from(f32::from_le_bytes(chunk[lane]));
        sums[lane] += value;
        squares[lane] = if FUSED {
            value.mul_add(value, squares[lane])
        } else {
            squares[lane] + value * value
        };
    }
}

/// A summary of a batch of F32, as words.
struct BatchSurvey {
    /// The greatest as a signed number: of the values without a sign the greatest one.
    signed: i32,
    /// The greatest as an unsigned number: of the values with a sign the one of the greatest magnitude.
    unsigned: u32,
    /// Zeros and numbers below the normal range.
    small: u32,
    /// Their bits.
    small_bits: u32,
}

impl BatchSurvey {
    #[inline(always)]
    #[allow(clippy::cast_possible_wrap)] // the word as a signed number
    fn of(batch: &[[u8; 4]]) -> Self {
        let mut all = Self {
            signed: i32::MIN,
            unsigned: 0,
            small: 0,
            small_bits: 0,
        };
        for word in batch {
            let word = u32::from_le_bytes(*word);
            all.signed = all.signed.max(word as i32);
            all.unsigned = all.unsigned.max(word);
            let small = word & INFINITY == 0;
            all.small += u32::from(small);
            all.small_bits |= if small { word } else { 0 };
        }
        all
    }

    /// Whether all magnitudes are below this one.
    #[inline(always)]
    #[allow(clippy::cast_possible_wrap)] // a magnitude
    fn is_below(&self, magnitude: u32) -> bool {
        self.signed < magnitude as i32 && self.unsigned < SIGN | magnitude
    }

    #[inline(always)]
    fn is_finite(&self) -> bool {
        self.is_below(INFINITY)
    }

    /// Adds the counts of the batch that was surveyed. `first`: the first word of all.
    #[inline(always)]
    #[allow(clippy::cast_sign_loss)] // the word as an unsigned number
    fn count(&self, batch: &[[u8; 4]], first: [u8; 4], counts: &mut NumberCounts) {
        if self.is_below(HUGE) && self.small_bits & !SIGN == 0 {
            counts.zeros += u64::from(self.small);
        } else {
            let kinds = floats_32(batch.as_flattened(), FloatBits::F32);
            counts.nan += kinds.nan;
            counts.inf += kinds.inf;
            counts.zeros += kinds.zeros;
            counts.subnormal += kinds.subnormal;
            counts.huge += kinds.huge;
        }
        counts.sum = counts.sum.wrapping_add(sum_of_bits(batch));
        let word = u32::from_le_bytes(first);
        // the maxima are known already; all words are compared only where both equal the first one
        if self.signed as u32 != word || self.unsigned != word {
            counts.varies = true;
        } else if !counts.varies {
            let mut differences = 0;
            for other in batch {
                differences |= u32::from_le_bytes(*other) ^ word;
            }
            counts.varies = differences != 0;
        }
    }
}

/// The sum of words. Two are added at a time: their sum is low + 2³² high, and the sum of the high ones is known.
#[inline(always)]
fn sum_of_bits(batch: &[[u8; 4]]) -> u64 {
    let (pairs, rest) = batch.as_flattened().as_chunks::<8>();
    let (mut all, mut high) = (0u64, 0u64);
    for pair in pairs {
        let pair = u64::from_le_bytes(*pair);
        all = all.wrapping_add(pair);
        high += pair >> 32;
    }
    // the sum of pairs has the high halves 2³² times too large
    let mut sum = all.wrapping_sub(high << 32).wrapping_add(high);
    for word in rest.as_chunks::<4>().0 {
        sum = sum.wrapping_add(u32::from_le_bytes(*word).into());
    }
    sum
}

/// The least and the greatest value.
struct ValueRange {
    least: f32,
    most: f32,
}

impl ValueRange {
    #[inline(always)]
    fn add_value(&mut self, value: f32) {
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// Adds the range of a batch of finite values.
    #[inline(always)]
    #[allow(clippy::cast_sign_loss)] // a word without a sign
    fn add_survey(&mut self, survey: &BatchSurvey, batch: &[[u8; 4]]) {
        let (positive, negative) = (survey.signed >= 0, survey.unsigned >= SIGN);
        if positive {
            self.most = self.most.max(f32::from_bits(survey.signed as u32));
        }
        if negative {
            self.least = self.least.min(f32::from_bits(survey.unsigned));
        }
        // all of one sign: the other end has the least word
        if (!negative && self.least > 0.0) || (!positive && self.most < 0.0) {
            let mut least = u32::MAX;
            for word in batch {
                least = least.min(u32::from_le_bytes(*word));
            }
            self.add_value(f32::from_bits(least));
        }
    }
}
