//! The values that percentiles of an F32 output rest on: all of them, or of a large one a sample.
//!
//! A sample has one group of 16 consecutive values, a cache line, of each span of groups. Which one is determined by a hash of the
//! span's number in the output: the sample does not depend on tiles and threads, and no column of a matrix is preferred.

use std::ops::Range;

/// Values of a group.
const GROUP: u64 = 16;
/// Outputs of up to this many values are not sampled.
const WHOLE: u64 = 1 << 20;
/// Values of a sample, at least; it has less than twice as many.
// the 0.1 % percentile then rests on 262 values below it
const LEAST: u64 = 1 << 18;

/// Bins by the first 16 bits.
const BINS: usize = 1 << 16;
/// The bins of finite values: below and above are infinities and what is no number.
const FINITE: Range<usize> = 0x0080..0xff80;

/// Which values of an output are in its sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    /// Groups of a span: a power of two.
    span: u64,
}

impl Sampling {
    /// The sampling for an output of this many values.
    pub(super) fn of(elements: u64) -> Self {
        let span = if elements <= WHOLE {
            1
        } else {
            // a power of two, so that the hash is reduced by a mask
            1 << (elements / LEAST).ilog2()
        };
        Self { span }
    }

    /// Values of a sample, at most.
    pub(super) fn most(self, elements: u64) -> u64 {
        if self.span == 1 {
            return elements;
        }
        elements.div_ceil(self.span * GROUP) * GROUP
    }

    /// Whether values are left out.
    pub(super) fn is_partial(self) -> bool {
        self.span > 1
    }

    /// Appends the words of the sample that are among these, of which the first is number `start` of the output.
    pub(super) fn append(self, start: u64, words: &[[u8; 4]], sample: &mut Vec<u32>) {
        let mut add = |words: &[[u8; 4]]| {
            sample.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        };
        if !self.is_partial() {
            return add(words);
        }
        let len = self.span * GROUP;
        let end = start + words.len() as u64;
        let within = |at: u64| usize::try_from(at.clamp(start, end) - start).unwrap_or(words.len());
        for span in start / len..end.div_ceil(len) {
            let first = span * len + self.group(span) * GROUP;
            // clamped: a group may be cut by the end of a tile, and the next tile adds the rest
            add(&words[within(first)..within(first + GROUP)]);
        }
    }

    /// The group of a span that is in the sample.
    fn group(self, span: u64) -> u64 {
        // the finaliser of SplitMix64: a multiplication alone repeats itself for some lengths of rows
        let mut bits = (span + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) & (self.span - 1)
    }
}

/// Words in the order of their values.
fn ascending(word: u32) -> u32 {
    let negative = word >> 31;
    word ^ (negative.wrapping_neg() | 1 << 31)
}

fn bin(word: u32) -> usize {
    (ascending(word) >> 16) as usize
}

/// The finite values of a sample by rank, without sorting more than the bins of the ranks.
#[derive(Debug)]
pub(super) struct SampleRanks {
    /// Values by bin.
    counts: Vec<u32>,
    finite: u64,
}

impl SampleRanks {
    /// Bytes that it takes.
    pub(super) const NBYTES: u64 = (BINS * size_of::<u32>()) as u64;

    /// Counts a sample, which has fewer than 2³² values; `None` if there is no memory for it.
    pub(super) fn of(sample: &[u32]) -> Option<Self> {
        let mut counts: Vec<u32> = crate::base::limits::zeroed_numbers(BINS)?;
        let bins: &mut [u32; BINS] = counts.as_mut_slice().try_into().ok()?;
        for word in sample {
            bins[bin(*word)] += 1;
        }
        let finite = bins[FINITE].iter().map(|count| u64::from(*count)).sum();
        Some(Self { counts, finite })
    }

    /// Finite values of the sample.
    pub(super) fn finite(&self) -> u64 {
        self.finite
    }

    /// The values of ranks, which ascend and are below [`finite`](Self::finite). The sample is reordered and shortened.
    pub(super) fn values(mut self, ranks: &[u64], sample: &mut Vec<u32>) -> Vec<f64> {
        let mut wanted = ranks.iter().copied().peekable();
        // by rank, where its value is among those that are kept; the counts become marks of their bins
        let mut at = Vec::with_capacity(ranks.len());
        let (mut passed, mut kept) = (0u64, 0u64);
        for (bin, count) in self.counts.iter_mut().enumerate() {
            let in_bin = u64::from(std::mem::take(count));
            if !FINITE.contains(&bin) {
                continue;
            }
            let behind = passed + in_bin;
            let before = at.len();
            while let Some(rank) = wanted.next_if(|rank| *rank < behind) {
                at.push(kept + (rank - passed));
            }
            if at.len() > before {
                *count = 1;
                kept += in_bin;
            }
            passed = behind;
        }
        sample.retain(|word| self.counts[bin(*word)] > 0);
        // after most values were dropped: sorting a whole sample takes longer than decoding it
        sample.sort_unstable_by_key(|word| ascending(*word));
        let value = |at: u64| {
            let word = usize::try_from(at).ok().and_then(|at| sample.get(at));
            // the zero without a sign
            word.map_or(f64::NAN, |word| f64::from(f32::from_bits(*word)) + 0.0)
        };
        at.into_iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sampling: Sampling, words: &[[u8; 4]], tile: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for (number, words) in words.chunks(tile).enumerate() {
            sampling.append((number * tile) as u64, words, &mut found);
        }
        found
    }

    #[test]
    fn tiles_of_any_size_give_the_same_sample() {
        for elements in [WHOLE, WHOLE + 1, 3 * WHOLE - 7, 9 * WHOLE + 12_345] {
            let sampling = Sampling::of(elements);
            let numbers = 0..u32::try_from(elements).unwrap();
            let words: Vec<[u8; 4]> = numbers.map(u32::to_le_bytes).collect();
            let whole = sample(sampling, &words, words.len());
            let most = if elements == WHOLE { WHOLE } else { 2 * LEAST };
            assert!((LEAST..=most).contains(&(whole.len() as u64)), "{elements}");
            assert!(whole.len() as u64 <= sampling.most(elements));
            assert!(whole.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(sampling.is_partial(), elements > WHOLE);
            for tile in [1, 15, 16, 17, 1000, 4099, 1 << 17] {
                assert_eq!(sample(sampling, &words, tile), whole, "tiles of {tile}");
            }
        }
    }

    #[test]
    fn no_column_is_preferred() {
        // rows of as many spans as the multiples of the golden ratio come back after
        for row_spans in [1, 2, 3, 14, 89, 610, 6765] {
            let sampling = Sampling::of(64 * WHOLE);
            let mut counts = vec![0u32; usize::try_from(sampling.span).unwrap()];
            let rows = 64 * sampling.span;
            for row in 0..rows {
                counts[usize::try_from(sampling.group(row * row_spans)).unwrap()] += 1;
            }
            // 64 expected: eight standard deviations
            assert!(
                counts.iter().all(|count| (1..128).contains(count)),
                "{row_spans}"
            );
        }
    }

    #[test]
    fn ranks_are_those_of_sorted_values() {
        let mut bits = 1u32;
        let mut words: Vec<u32> = (0..5000)
            .map(|n| {
                bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // any numbers, and many that share a bin
                if n % 2 == 0 {
                    bits
                } else {
                    0x3f80_0000 | bits >> 20
                }
            })
            .collect();
        for value in [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
        ] {
            words.push(value.to_bits());
        }
        words.push(f32::NAN.to_bits());
        words.push(f32::NAN.to_bits() | 1 << 31);
        let values = words.iter().map(|word| f64::from(f32::from_bits(*word)));
        let mut sorted: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() as u64 - 1;
        for ranks in [
            vec![0, 0, 1, 7, last / 2, last / 2 + 1, last - 1, last, last],
            (0..=last).collect(),
        ] {
            let counted = SampleRanks::of(&words).unwrap();
            assert_eq!(counted.finite(), last + 1);
            let expected = ranks
                .iter()
                .map(|rank| sorted[usize::try_from(*rank).unwrap()]);
            let expected: Vec<f64> = expected.collect();
            assert_eq!(counted.values(&ranks, &mut words.clone()), expected);
        }
        let mut none = vec![f32::NAN.to_bits(); 3];
        let counted = SampleRanks::of(&none).unwrap();
        assert_eq!(counted.finite(), 0);
        assert!(counted.values(&[], &mut none).is_empty());
    }
}
