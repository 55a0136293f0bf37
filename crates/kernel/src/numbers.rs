//! Counts and sums of the numbers in a buffer: what a check of decoded weights needs. One pass each, by comparing bits where
//! that suffices, so that it costs about as much as reading the buffer.

use crate::dtype::Dtype;
use crate::isa::{Computation, compute};

/// Magnitudes of a floating-point dtype as bits, without the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatBits {
    /// Bytes of a number.
    pub width: usize,
    /// Infinity; what is above is not a number.
    pub infinity: u64,
    /// The smallest normal number.
    pub normal: u64,
    /// A quarter of the range.
    pub huge: u64,
}

impl FloatBits {
    /// Those of F16, BF16, F32 or F64; `None` for another dtype.
    pub fn of(dtype: Dtype) -> Option<Self> {
        let (width, infinity, normal, huge) = match dtype {
            Dtype::F16 => (2, 0x7c00, 0x0400, 0x7400),
            Dtype::BF16 => (2, 0x7f80, 0x0080, 0x7e80),
            Dtype::F32 => (4, 0x7f80_0000, 0x0080_0000, 0x7e80_0000),
            Dtype::F64 => (8, 0x7ff0 << 48, 0x0010 << 48, 0x7fd0 << 48),
            _ => return None,
        };
        Some(Self {
            width,
            infinity,
            normal,
            huge,
        })
    }
}

/// What was counted in the numbers of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberCounts {
    /// Not a number.
    pub nan: u64,
    /// Infinite.
    pub inf: u64,
    /// Zeros of either sign.
    pub zeros: u64,
    /// Below the normal range, and not zero.
    pub subnormal: u64,
    /// Finite, and a quarter of the range or more.
    pub huge: u64,
    /// Whether the bits of a number differ from those of the first.
    pub varies: bool,
    /// The sum of all bits: equal buffers have equal sums.
    pub sum: u64,
}

/// Counts the little-endian floats of a buffer. Bytes behind the last whole one are left out.
///
/// # Examples
/// ```
/// use anamnesis_kernel::{Dtype, FloatBits, count_floats};
///
/// let bits = FloatBits::of(Dtype::F32).unwrap();
/// let values = [1.0f32, f32::NAN, -0.0, 1e-40];
/// let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
/// let counts = count_floats(bits, &bytes);
/// assert_eq!((counts.nan, counts.zeros, counts.subnormal), (1, 1, 1));
/// ```
pub fn count_floats(bits: FloatBits, bytes: &[u8]) -> NumberCounts {
    compute(CountFloats { bits, bytes })
}

/// Counts the zeros in a buffer of little-endian integers of `width` bytes (2, 4 or 8; others count nothing), whether they
/// vary, and their sum.
pub fn count_integers(width: usize, bytes: &[u8]) -> NumberCounts {
    compute(CountIntegers { width, bytes })
}

/// Numbers whose counts fit 16 bits.
const BATCH: usize = 4096;

#[derive(Clone, Copy)]
struct CountFloats<'b> {
    bits: FloatBits,
    bytes: &'b [u8],
}

#[derive(Clone, Copy)]
struct CountIntegers<'b> {
    width: usize,
    bytes: &'b [u8],
}

macro_rules! count_words {
    ($floats:ident, $integers:ident, $word:ty, $bytes:literal) => {
        #[inline(always)]
        #[allow(clippy::cast_possible_truncation)] // magnitudes of this width
        fn $floats(bytes: &[u8], bits: FloatBits) -> NumberCounts {
            let (words, _) = bytes.as_chunks::<$bytes>();
            let mut counts = NumberCounts::default();
            let Some(first) = words.first() else {
                return counts;
            };
            let first = <$word>::from_le_bytes(*first);
            let (infinity, normal, huge) = (
                bits.infinity as $word,
                bits.normal as $word,
                bits.huge as $word,
            );
            let mut differences: $word = 0;
            for batch in words.chunks(BATCH) {
                let [mut nan, mut inf, mut zeros, mut small, mut large] = [0 as $word; 5];
                let mut sum = 0u64;
                for word in batch {
                    let word = <$word>::from_le_bytes(*word);
                    let magnitude = word & (<$word>::MAX >> 1);
                    nan += <$word>::from(magnitude > infinity);
                    inf += <$word>::from(magnitude == infinity);
                    zeros += <$word>::from(magnitude == 0);
                    small += <$word>::from(magnitude < normal);
                    large += <$word>::from(magnitude >= huge);
                    differences |= word ^ first;
                    sum = sum.wrapping_add(u64::from(word));
                }
                counts.nan += u64::from(nan);
                counts.inf += u64::from(inf);
                counts.zeros += u64::from(zeros);
                counts.subnormal += u64::from(small - zeros);
                counts.huge += u64::from(large - nan - inf);
                counts.sum = counts.sum.wrapping_add(sum);
            }
            counts.varies = differences != 0;
            counts
        }

        #[inline(always)]
        fn $integers(bytes: &[u8]) -> NumberCounts {
            let (words, _) = bytes.as_chunks::<$bytes>();
            let mut counts = NumberCounts::default();
            let Some(first) = words.first() else {
                return counts;
            };
            let first = <$word>::from_le_bytes(*first);
            let mut differences: $word = 0;
            for batch in words.chunks(BATCH) {
                let mut zeros = 0 as $word;
                let mut sum = 0u64;
                for word in batch {
                    let word = <$word>::from_le_bytes(*word);
                    zeros += <$word>::from(word == 0);
                    differences |= word ^ first;
                    sum = sum.wrapping_add(u64::from(word));
                }
                counts.zeros += u64::from(zeros);
                counts.sum = counts.sum.wrapping_add(sum);
            }
            counts.varies = differences != 0;
            counts
        }
    };
}

count_words!(floats_16, integers_16, u16, 2);
count_words!(floats_32, integers_32, u32, 4);
count_words!(floats_64, integers_64, u64, 8);

impl Computation for CountFloats<'_> {
    type Output = NumberCounts;

    #[inline(always)]
    fn run(self) -> NumberCounts {
        match self.bits.width {
            2 => floats_16(self.bytes, self.bits),
            4 => floats_32(self.bytes, self.bits),
            8 => floats_64(self.bytes, self.bits),
            _ => NumberCounts::default(),
        }
    }
}

impl Computation for CountIntegers<'_> {
    type Output = NumberCounts;

    #[inline(always)]
    fn run(self) -> NumberCounts {
        match self.width {
            2 => integers_16(self.bytes),
            4 => integers_32(self.bytes),
            8 => integers_64(self.bytes),
            _ => NumberCounts::default(),
        }
    }
}

/// Sums of F32 values, for mean and deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NumberSums {
    /// How many were summed.
    pub n: u64,
    /// The first of them: deviations from it lose no digits where the mean is large.
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
struct SumF32<'b> {
    bytes: &'b [u8],
    limit: f32,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::compute_each;

    /// Bits of all kinds, from a linear congruential generator.
    fn words(n: u64) -> Vec<u8> {
        let mut state = 7u64;
        let mut bytes = Vec::new();
        for number in 0..n {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = match number % 11 {
                0 => 0,
                1 => 0x8000_0000_8000_8000,
                2 => 0x7f80_0000_7c00_7f80,
                3 => 0x7ff0_0000_0000_0000,
                _ => state,
            };
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// The same by the definition of each dtype, number by number.
    fn oracle(dtype: Dtype, bytes: &[u8]) -> NumberCounts {
        let width = dtype.width();
        let mut counts = NumberCounts::default();
        let quarter = match dtype {
            Dtype::F16 => 2f64.powi(14),
            Dtype::F64 => 2f64.powi(1022),
            _ => 2f64.powi(126),
        };
        let normal = match dtype {
            Dtype::F16 => 2f64.powi(-14),
            Dtype::F64 => f64::MIN_POSITIVE,
            _ => 2f64.powi(-126),
        };
        for word in bytes.chunks_exact(width) {
            let mut bits = [0; 8];
            bits[..width].copy_from_slice(word);
            counts.sum = counts.sum.wrapping_add(u64::from_le_bytes(bits));
            counts.varies |= word != &bytes[..width];
            let value = match dtype {
                Dtype::F16 => half::f16::from_le_bytes([word[0], word[1]]).to_f64(),
                Dtype::BF16 => half::bf16::from_le_bytes([word[0], word[1]]).to_f64(),
                Dtype::F32 => f32::from_le_bytes(word.try_into().unwrap()).into(),
                _ => f64::from_le_bytes(word.try_into().unwrap()),
            };
            counts.nan += u64::from(value.is_nan());
            counts.inf += u64::from(value.is_infinite());
            counts.zeros += u64::from(value == 0.0);
            counts.subnormal += u64::from(value != 0.0 && value.abs() < normal);
            counts.huge += u64::from(value.is_finite() && value.abs() >= quarter);
        }
        counts
    }

    #[test]
    fn every_build_counts_what_the_definition_counts() {
        let n = if cfg!(miri) { 60 } else { 10_000 };
        let bytes = words(n);
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
            let bits = FloatBits::of(dtype).unwrap();
            for len in [0, dtype.width(), bytes.len() - 3, bytes.len()] {
                let bytes = &bytes[..len];
                let expected = oracle(dtype, bytes);
                for (isa, counts) in compute_each(CountFloats { bits, bytes }) {
                    assert_eq!(counts, expected, "{dtype} of {len} bytes, {isa}");
                }
                let width = dtype.width();
                let zero = |word: &&[u8]| word.iter().all(|&byte| byte == 0);
                let zeros = bytes.chunks_exact(width).filter(zero).count() as u64;
                for (isa, counts) in compute_each(CountIntegers { width, bytes }) {
                    let expected = (zeros, expected.varies, expected.sum);
                    let found = (counts.zeros, counts.varies, counts.sum);
                    assert_eq!(found, expected, "{width} bytes, {isa}");
                }
            }
        }
        assert_eq!(count_integers(3, &[0; 9]), NumberCounts::default());
    }

    #[test]
    fn every_build_sums_the_same_values() {
        let n = if cfg!(miri) { 40 } else { 40_000 };
        let bytes = words(n);
        for limit in [f32::INFINITY, 2f32.powi(126), 1.0] {
            for len in [0, 4, 28, 4 * 13, bytes.len()] {
                let bytes = &bytes[..len];
                let values = bytes.chunks_exact(4);
                let values = values.map(|word| f32::from_le_bytes(word.try_into().unwrap()));
                let values: Vec<f32> = values.filter(|value| value.abs() < limit).collect();
                let sums = sum_f32(bytes, limit);
                assert_eq!(sums.n, values.len() as u64);
                for (isa, found) in compute_each(SumF32 { bytes, limit }) {
                    assert_eq!(found, sums, "{len} bytes below {limit}, {isa}");
                }
                let Some(first) = values.first() else {
                    continue;
                };
                assert_eq!(sums.shift, *first);
                let least = values.iter().copied().fold(*first, f32::min);
                let most = values.iter().copied().fold(*first, f32::max);
                assert_eq!((sums.min, sums.max), (least, most));
                let deviations = values
                    .iter()
                    .map(|value| f64::from(*value) - f64::from(*first));
                let sum: f64 = deviations.clone().sum();
                let squares: f64 = deviations.map(|deviation| deviation * deviation).sum();
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * squares.max(1.0).max(b.abs());
                assert!(near(sums.sum, sum), "{sums:?} {sum}");
                assert!(
                    (sums.squares - squares).abs() <= 1e-9 * squares,
                    "{sums:?} {squares}"
                );
            }
        }
    }
}
