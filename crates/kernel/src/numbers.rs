//! Counts and sums of the numbers in a buffer: what a check of decoded weights needs. One pass each, by comparing bits where
//! that suffices, so that it costs about as much as reading the buffer.

mod singles;
mod sums;
#[cfg(test)]
mod tests;

use crate::dtype::Dtype;
use crate::isa::{Computation, compute};

pub use singles::count_and_sum_f32;
pub use sums::{NumberSums, sum_f32};

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
    const F32: Self = Self {
        width: 4,
        infinity: 0x7f80_0000,
        normal: 0x0080_0000,
        huge: 0x7e80_0000,
    };

    /// The layout of F16, BF16, F32 or F64; `None` for another dtype.
    pub fn of(dtype: Dtype) -> Option<Self> {
        let (width, infinity, normal, huge) = match dtype {
            Dtype::F16 => (2, 0x7c00, 0x0400, 0x7400),
            Dtype::BF16 => (2, 0x7f80, 0x0080, 0x7e80),
            Dtype::F32 => return Some(Self::F32),
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

/// Counts of the numbers of a buffer.
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
    /// Whether the bits of a number differ from the first number's bits.
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
                // zeros are below the normal range too
                counts.subnormal += u64::from(small - zeros);
                // infinities and what is above them are not finite
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
            4 if self.bits == FloatBits::F32 => singles::count(self.bytes),
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
