//! The properties of a tile's values: counts of values that cannot be right, found by comparing bits, so that it costs less
//! than reading them. Tiles are folded in order.

use crate::base::kernel::Dtype;
use crate::base::kernel::{FloatBits, NumberCounts, count_floats, count_integers};

use super::zero_runs::{RowZeros, TileZeros};

/// How the elements of a dtype are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanForm {
    /// Floats.
    Float(FloatBits),
    /// Items of this many bytes, of which only zeros and equal ones are counted.
    Items(usize),
}

impl ScanForm {
    /// The form of a dtype, and how many numbers an element has (two, if complex). `None` if elements share bytes.
    pub(super) fn of(dtype: Dtype) -> Option<(Self, u64)> {
        let (part, numbers) = match dtype {
            // a complex number is two floats, which are not finite one by one
            Dtype::C32 => (Dtype::F16, 2),
            Dtype::C64 => (Dtype::F32, 2),
            Dtype::C128 => (Dtype::F64, 2),
            other => (other, 1),
        };
        let form = match FloatBits::of(part) {
            Some(bits) => Self::Float(bits),
            None => Self::Items(usize::try_from(part.item_bytes()?).ok()?),
        };
        Some((form, numbers))
    }

    fn width(self) -> usize {
        match self {
            Self::Float(bits) => bits.width,
            Self::Items(width) => width,
        }
    }
}

/// Counts of the elements of a tile, or of all tiles so far. Positions count numbers from the output's first.
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

impl TileScan {
    /// Counts in a tile that begins at number `start` of an output with rows of `row` numbers.
    pub(super) fn of(form: ScanForm, bytes: &[u8], start: u64, row: u64) -> Self {
        let counts = match (form, form.width()) {
            (ScanForm::Float(bits), _) => count_floats(bits, bytes),
            // widths that vector registers compare
            (ScanForm::Items(_), 2 | 4 | 8) => count_integers(form.width(), bytes),
            (ScanForm::Items(width), _) => count_items(bytes, width),
        };
        Self::of_counted(form, counts, bytes, start, row)
    }

    /// Like [`of`](Self::of), for a tile whose numbers are counted.
    pub(super) fn of_counted(
        form: ScanForm,
        counts: NumberCounts,
        bytes: &[u8],
        start: u64,
        row: u64,
    ) -> Self {
        let bits = match form {
            ScanForm::Float(bits) => Some(bits),
            ScanForm::Items(_) => None,
        };
        let width = form.width();
        let mut scan = Self {
            numbers: (bytes.len() / width.max(1)) as u64,
            nan: counts.nan,
            inf: counts.inf,
            zeros: counts.zeros,
            denormal: counts.subnormal,
            huge: counts.huge,
            first_bits: first_bits(bytes.get(..width).unwrap_or_default()),
            varies: counts.varies,
            sum: counts.sum,
            ..Self::default()
        };
        if let Some(bits) = bits {
            let find = |count: u64, is: &dyn Fn(u64) -> bool| {
                // searched for only where the counts say that there is one, which is almost never
                (count > 0).then(|| position(bytes, width, is))?
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
            scan.zeros_at = TileZeros::of(bytes, width, sign, start, row, scan.zeros);
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
            // two tiles of one value each may have different ones
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
            // tiles are folded in order, so that the earlier one stays
            *first = first.or(next);
        }
    }

    /// Ends the last run of zeros.
    pub(super) fn finish(&mut self, row: u64) {
        self.rows.close(self.numbers, row);
    }
}

/// Like [`count_integers`], for items of any width. Only a sum of their bits is known, which depends on their order.
fn count_items(bytes: &[u8], width: usize) -> NumberCounts {
    let mut counts = NumberCounts::default();
    let first = bytes.get(..width).unwrap_or_default();
    for item in bytes.chunks_exact(width.max(1)) {
        counts.zeros += u64::from(item.iter().all(|&byte| byte == 0));
        counts.varies |= item != first;
        let words = item.iter().map(|&byte| u64::from(byte));
        counts.sum = words.fold(counts.sum, |sum, byte| {
            // depends on the order, as equal sums are to mean equal items as often as possible
            sum.rotate_left(1).wrapping_add(byte)
        });
    }
    counts
}

/// The first bits of an item.
fn first_bits(item: &[u8]) -> u64 {
    let mut bits = [0; 8];
    let n = item.len().min(8);
    bits[..n].copy_from_slice(&item[..n]);
    u64::from_le_bytes(bits)
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
    first_bits(word) & !(1 << (8 * word.len() - 1))
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
