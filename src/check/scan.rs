//! What a tile's values are like: counts of what cannot be right, found by comparing bits, so that it costs less than reading
//! them. Tiles are folded in order.

use crate::Dtype;

use super::zero_runs::{RowZeros, TileZeros};

/// Magnitudes of a floating-point dtype as bits, without the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatBits {
    infinity: u64,
    /// The smallest normal number.
    normal: u64,
    /// A quarter of the range.
    huge: u64,
}

/// How the elements of a dtype are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanForm {
    /// Floats of this many bytes.
    Float(usize, FloatBits),
    /// Items of this many bytes, of which only zeros and equal ones are counted.
    Items(usize),
}

impl ScanForm {
    /// The form of a dtype, and how many numbers an element has (two, if complex). `None` if elements share bytes.
    pub(super) fn of(dtype: Dtype) -> Option<(Self, u64)> {
        const F16: FloatBits = FloatBits {
            infinity: 0x7c00,
            normal: 0x0400,
            huge: 0x7400,
        };
        const BF16: FloatBits = FloatBits {
            infinity: 0x7f80,
            normal: 0x0080,
            huge: 0x7e80,
        };
        const F32: FloatBits = FloatBits {
            infinity: 0x7f80_0000,
            normal: 0x0080_0000,
            huge: 0x7e80_0000,
        };
        const F64: FloatBits = FloatBits {
            infinity: 0x7ff0 << 48,
            normal: 0x0010 << 48,
            huge: 0x7fd0 << 48,
        };
        Some(match dtype {
            Dtype::F16 => (Self::Float(2, F16), 1),
            Dtype::BF16 => (Self::Float(2, BF16), 1),
            Dtype::F32 => (Self::Float(4, F32), 1),
            Dtype::F64 => (Self::Float(8, F64), 1),
            Dtype::C32 => (Self::Float(2, F16), 2),
            Dtype::C64 => (Self::Float(4, F32), 2),
            Dtype::C128 => (Self::Float(8, F64), 2),
            other => (Self::Items(usize::try_from(other.item_bytes()?).ok()?), 1),
        })
    }

    fn width(self) -> usize {
        match self {
            Self::Float(width, _) | Self::Items(width) => width,
        }
    }
}

/// What was counted in the elements of a tile, or of all tiles so far. Positions count numbers from the output's first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TileScan {
    pub(super) numbers: u64,
    pub(super) nan: u64,
    pub(super) inf: u64,
    pub(super) zeros: u64,
    pub(super) denormal: u64,
    /// Finite magnitudes of a quarter of the range and more.
    pub(super) huge: u64,
    pub(super) first_nan: Option<u64>,
    pub(super) first_inf: Option<u64>,
    pub(super) first_huge: Option<u64>,
    /// The bits of the first number.
    pub(super) first_bits: u64,
    /// Whether a number differs from the first.
    pub(super) varies: bool,
    /// The sum of all bits: equal outputs have equal sums.
    pub(super) sum: u64,
    /// The zeros of a tile.
    zeros_at: TileZeros,
    /// The runs of zeros of all tiles so far.
    pub(super) rows: RowZeros,
}

/// Numbers whose counts fit 16 bits.
const BATCH: usize = 4096;

macro_rules! scan_words {
    ($function:ident, $word:ty, $bytes:literal) => {
        /// Counts in the words of a tile; `bits` is `None` if they are not floats.
        fn $function(bytes: &[u8], bits: Option<FloatBits>, scan: &mut TileScan) {
            let (words, _) = bytes.as_chunks::<$bytes>();
            let Some(first) = words.first() else { return };
            let first = <$word>::from_le_bytes(*first);
            let sign = if bits.is_some() {
                1 << (<$word>::BITS - 1)
            } else {
                0
            };
            let limit = |bits: u64| <$word>::try_from(bits).unwrap_or(<$word>::MAX);
            // without float bits no magnitude is above these
            let float = bits.unwrap_or(FloatBits {
                infinity: u64::MAX,
                normal: 0,
                huge: u64::MAX,
            });
            let (infinity, normal, huge) = (
                limit(float.infinity),
                limit(float.normal),
                limit(float.huge),
            );
            let is_float = u64::from(bits.is_some());
            let mut differences: $word = 0;
            for batch in words.chunks(BATCH) {
                let [mut nan, mut inf, mut zeros, mut small, mut large] = [0 as $word; 5];
                let mut sum = 0u64;
                for word in batch {
                    let word = <$word>::from_le_bytes(*word);
                    let magnitude = word & !sign;
                    nan += <$word>::from(magnitude > infinity);
                    inf += <$word>::from(magnitude == infinity);
                    zeros += <$word>::from(magnitude == 0);
                    small += <$word>::from(magnitude < normal);
                    large += <$word>::from(magnitude >= huge);
                    differences |= word ^ first;
                    sum = sum.wrapping_add(u64::from(word));
                }
                let [nan, inf, zeros, small, large] =
                    [nan, inf, zeros, small, large].map(u64::from);
                scan.nan += nan * is_float;
                scan.inf += inf * is_float;
                scan.zeros += zeros;
                scan.denormal += small.saturating_sub(zeros) * is_float;
                scan.huge += (large - (nan + inf).min(large)) * is_float;
                scan.sum = scan.sum.wrapping_add(sum);
            }
            scan.first_bits = first.into();
            scan.varies = differences != 0;
        }
    };
}

scan_words!(scan_u16, u16, 2);
scan_words!(scan_u32, u32, 4);
scan_words!(scan_u64, u64, 8);

impl TileScan {
    /// Counts in a tile that begins at number `start` of an output with rows of `row` numbers.
    pub(super) fn of(form: ScanForm, bytes: &[u8], start: u64, row: u64) -> Self {
        let mut scan = Self {
            numbers: (bytes.len() / form.width().max(1)) as u64,
            ..Self::default()
        };
        let bits = match form {
            ScanForm::Float(_, bits) => Some(bits),
            ScanForm::Items(_) => None,
        };
        match form.width() {
            2 => scan_u16(bytes, bits, &mut scan),
            4 => scan_u32(bytes, bits, &mut scan),
            8 => scan_u64(bytes, bits, &mut scan),
            width => scan_items(bytes, width, &mut scan),
        }
        if let Some(bits) = bits {
            let find = |count: u64, is: &dyn Fn(u64) -> bool| {
                (count > 0).then(|| position(bytes, form.width(), is))?
            };
            scan.first_nan = find(scan.nan, &|m| m > bits.infinity);
            scan.first_inf = find(scan.inf, &|m| m == bits.infinity);
            scan.first_huge = find(scan.huge, &|m| m >= bits.huge && m < bits.infinity);
            for first in [
                &mut scan.first_nan,
                &mut scan.first_inf,
                &mut scan.first_huge,
            ] {
                *first = first.map(|at| at + start);
            }
        }
        if scan.zeros > 0 {
            let sign = bits.is_some();
            scan.zeros_at = TileZeros::of(bytes, form.width(), sign, start, row, scan.zeros);
        }
        scan
    }

    /// Appends the next tile.
    pub(super) fn fold(&mut self, next: &Self, row: u64) {
        self.rows
            .append(&next.zeros_at, self.numbers, next.numbers, row);
        if self.numbers == 0 {
            (self.first_bits, self.varies) = (next.first_bits, next.varies);
        } else if next.numbers > 0 {
            self.varies |= next.varies || self.first_bits != next.first_bits;
        }
        self.numbers += next.numbers;
        self.nan += next.nan;
        self.inf += next.inf;
        self.zeros += next.zeros;
        self.denormal += next.denormal;
        self.huge += next.huge;
        self.sum = self.sum.wrapping_add(next.sum);
        for (first, next) in [
            (&mut self.first_nan, next.first_nan),
            (&mut self.first_inf, next.first_inf),
            (&mut self.first_huge, next.first_huge),
        ] {
            *first = first.or(next);
        }
    }

    /// Ends the last run of zeros.
    pub(super) fn finish(&mut self, row: u64) {
        self.rows.close(self.numbers, row);
    }
}

fn scan_items(bytes: &[u8], width: usize, scan: &mut TileScan) {
    let mut items = bytes.chunks_exact(width.max(1));
    let first = bytes.get(..width).unwrap_or_default();
    for item in items.by_ref() {
        scan.zeros += u64::from(item.iter().all(|&byte| byte == 0));
        scan.varies |= item != first;
        let words = item.iter().map(|&byte| u64::from(byte));
        scan.sum = words.fold(scan.sum, |sum, byte| sum.rotate_left(1).wrapping_add(byte));
    }
    let mut bits = [0; 8];
    let n = first.len().min(8);
    bits[..n].copy_from_slice(&first[..n]);
    scan.first_bits = u64::from_le_bytes(bits);
}

/// The number of the first word whose magnitude fulfils a condition.
fn position(bytes: &[u8], width: usize, is: &dyn Fn(u64) -> bool) -> Option<u64> {
    let found = bytes
        .chunks_exact(width)
        .position(|word| is(magnitude(word)));
    found.map(|at| at as u64)
}

/// A float's bits without its sign.
fn magnitude(word: &[u8]) -> u64 {
    let mut bits = [0; 8];
    bits[..word.len()].copy_from_slice(word);
    u64::from_le_bytes(bits) & !(1 << (8 * word.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bf16(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn kinds_of_values_are_counted_with_the_first_position() {
        let (form, _) = ScanForm::of(Dtype::BF16).unwrap();
        let bytes = bf16(&[
            0x3f80, 0x7fc0, 0xff80, 0x8000, 0x0003, 0x7f00, 0xffff, 0x7f80,
        ]);
        let scan = TileScan::of(form, &bytes, 100, 1000);
        assert_eq!((scan.nan, scan.inf, scan.zeros), (2, 2, 1));
        assert_eq!((scan.denormal, scan.huge), (1, 1));
        assert_eq!(scan.first_nan, Some(101));
        assert_eq!(scan.first_inf, Some(102));
        assert_eq!(scan.first_huge, Some(105));
        assert!(scan.varies);
    }

    #[test]
    fn folded_tiles_are_the_whole() {
        let (form, _) = ScanForm::of(Dtype::F16).unwrap();
        let mut values: Vec<u16> = (0..20_000u16).map(|i| i.wrapping_mul(40_503)).collect();
        values[5_000..9_001].fill(0);
        let bytes = bf16(&values);
        let row = 100;
        let fold = |tile: usize| {
            let mut all = TileScan::default();
            for (i, piece) in bytes.chunks(2 * tile).enumerate() {
                let scan = TileScan::of(form, piece, (i * tile) as u64, row);
                all.fold(&scan, row);
            }
            all.finish(row);
            all
        };
        let whole = fold(20_000);
        assert_eq!(whole.rows.longest, Some([50, 90]));
        for tile in [1, 7, 100, 4096, 4097] {
            assert_eq!(fold(tile), whole, "tiles of {tile}");
        }
    }
}
