//! Sums over two equally long runs of elements, from which every measure of their distance is computed.

use crate::base::kernel::Dtype;

use super::numbers::{integer_at, is_wide_integer, to_f64};

/// Elements that are converted at a time: the values of both sides stay in the first-level cache.
const RUN: usize = 1024;

/// Independent sums: the compiler keeps them in one vector, and the result does not depend on the vector's width.
const LANES: usize = 8;

/// Sums over pairs of elements. Elements that are NaN or infinite on a side count in `differing` and in no sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) elements: u64,
    /// Pairs of other values: NaN equals NaN, and -0 equals 0.
    pub(super) differing: u64,
    /// The number of them that are not finite on a side.
    pub(super) not_finite: u64,
    /// Pairs of other bits, of elements of one dtype.
    pub(super) differing_bits: u64,
    /// Index of the first pair of other values.
    pub(super) first: Option<u64>,
    /// Index of the first pair of other bits.
    pub(super) first_bits: Option<u64>,
    /// Sum of a².
    pub(super) aa: f64,
    /// Sum of b².
    pub(super) bb: f64,
    /// Sum of a·b.
    pub(super) ab: f64,
    /// Sum of (a − b)².
    pub(super) dd: f64,
    /// Largest |a − b|.
    pub(super) max: f64,
}

impl Moments {
    /// The sums over elements of these dtypes, of which both are numbers. `start` is the index of the first.
    pub(super) fn of(a: (Dtype, &[u8]), b: (Dtype, &[u8]), start: u64) -> Self {
        let mut sums = Self::default();
        let (a_width, b_width) = (a.0.width(), b.0.width());
        let runs = a.1.chunks(RUN * a_width).zip(b.1.chunks(RUN * b_width));
        let (mut x, mut y) = ([0.0; RUN], [0.0; RUN]);
        for (run, (a_bytes, b_bytes)) in runs.enumerate() {
            let first = start + (run * RUN) as u64;
            let count = a_bytes.len() / a_width;
            sums.elements += count as u64;
            if a.0 == b.0 {
                sums.count_bits(a_bytes, b_bytes, a_width, first);
            }
            if is_wide_integer(a.0) || is_wide_integer(b.0) {
                sums.add_integers((a.0, a_bytes), (b.0, b_bytes), count, first);
                continue;
            }
            to_f64(a.0, a_bytes, &mut x[..count]);
            to_f64(b.0, b_bytes, &mut y[..count]);
            sums.add_floats(&mut x, &mut y, count, first);
        }
        sums
    }

    /// Counts elements of other bits.
    fn count_bits(&mut self, a: &[u8], b: &[u8], width: usize, first: u64) {
        // most runs are equal, and comparing slices is a call of `memcmp`
        if a == b {
            return;
        }
        let items = a.chunks_exact(width).zip(b.chunks_exact(width));
        for (i, _) in items.enumerate().filter(|(_, (a, b))| a != b) {
            self.differing_bits += 1;
            self.first_bits.get_or_insert(first + i as u64);
        }
    }

    /// Adds the first `count` elements. The rest of the arrays is overwritten.
    fn add_floats(&mut self, x: &mut [f64; RUN], y: &mut [f64; RUN], count: usize, first: u64) {
        let padded = count.next_multiple_of(LANES).min(RUN);
        // zeros change no sum
        x[count..padded].fill(0.0);
        y[count..padded].fill(0.0);
        let (mut aa, mut bb, mut ab, mut dd, mut max) = (
            [0.0; LANES],
            [0.0; LANES],
            [0.0; LANES],
            [0.0; LANES],
            [0.0f64; LANES],
        );
        let (mut differing, mut not_finite) = ([0u64; LANES], [0u64; LANES]);
        let lanes = x[..padded].as_chunks::<LANES>().0;
        for (x, y) in lanes.iter().zip(y[..padded].as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let (a, b) = (x[lane], y[lane]);
                #[allow(clippy::eq_op)] // only NaN differs from itself
                let same = a == b || (a != a && b != b);
                let finite = a.is_finite() && b.is_finite();
                differing[lane] += u64::from(!same);
                not_finite[lane] += u64::from(!same && !finite);
                // selected and not branched on, so that the loop stays vectors
                let (a, b) = if finite { (a, b) } else { (0.0, 0.0) };
                let d = a - b;
                aa[lane] += a * a;
                bb[lane] += b * b;
                ab[lane] += a * b;
                dd[lane] += d * d;
                max[lane] = max[lane].max(d.abs());
            }
        }
        let sum = |lanes: [f64; LANES]| lanes.iter().sum::<f64>();
        self.aa += sum(aa);
        self.bb += sum(bb);
        self.ab += sum(ab);
        self.dd += sum(dd);
        self.max = max.iter().fold(self.max, |max, lane| max.max(*lane));
        self.not_finite += not_finite.iter().sum::<u64>();
        let differing = differing.iter().sum::<u64>();
        self.differing += differing;
        // a second look, once: the index would be a branch in the loop
        if differing > 0 && self.first.is_none() {
            let mut pairs = x[..count].iter().zip(&y[..count]);
            let at = pairs.position(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
            self.first = at.map(|at| first + at as u64);
        }
    }

    /// Adds elements of which a side has integers that an F64 does not hold.
    fn add_integers(&mut self, a: (Dtype, &[u8]), b: (Dtype, &[u8]), count: usize, first: u64) {
        for i in 0..count {
            let at = |(dtype, bytes): (Dtype, &[u8])| integer_at(dtype, bytes, i);
            let float = |(dtype, bytes): (Dtype, &[u8])| {
                let width = dtype.width();
                let mut value = [0.0];
                to_f64(dtype, &bytes[i * width..][..width], &mut value);
                value[0]
            };
            let (x, y) = (float(a), float(b));
            // as integers where both values are some: F64 would round them equal
            #[allow(clippy::cast_precision_loss)] // the difference as a measure; equality is exact
            let (same, d) = match (at(a).or(whole(x)), at(b).or(whole(y))) {
                (Some(m), Some(n)) => (m == n, (m - n) as f64),
                _ => (x == y, x - y),
            };
            if !same {
                self.differing += 1;
                self.first.get_or_insert(first + i as u64);
            }
            if !(x.is_finite() && y.is_finite()) {
                self.not_finite += u64::from(!same);
                continue;
            }
            self.aa += x * x;
            self.bb += y * y;
            self.ab += x * y;
            self.dd += d * d;
            self.max = self.max.max(d.abs());
        }
    }

    /// Adds the sums of the elements that follow these.
    pub(super) fn append(&mut self, next: &Self) {
        self.elements += next.elements;
        self.differing += next.differing;
        self.not_finite += next.not_finite;
        self.differing_bits += next.differing_bits;
        self.first = self.first.or(next.first);
        self.first_bits = self.first_bits.or(next.first_bits);
        self.aa += next.aa;
        self.bb += next.bb;
        self.ab += next.ab;
        self.dd += next.dd;
        self.max = self.max.max(next.max);
    }

    /// |a − b|² / |a|²; `None` if a is all zero, or a sum is over the range of an F64.
    pub(super) fn nmse(&self) -> Option<f64> {
        (self.aa > 0.0)
            .then(|| self.dd / self.aa)
            .filter(|x| x.is_finite() && self.aa.is_finite())
    }

    /// The largest |a − b|.
    pub(super) fn max_abs(&self) -> Option<f64> {
        (self.elements > 0)
            .then_some(self.max)
            .filter(|x| x.is_finite())
    }

    /// The root of the mean of (a − b)².
    pub(super) fn rmse(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // a count of elements
        let elements = self.elements as f64;
        let mean = (self.elements > 0).then(|| (self.dd / elements).sqrt());
        mean.filter(|x| x.is_finite())
    }

    /// The cosine of the angle between a and b; `None` if either is all zero.
    pub(super) fn cosine(&self) -> Option<f64> {
        let cosine =
            (self.aa > 0.0 && self.bb > 0.0).then(|| self.ab / (self.aa.sqrt() * self.bb.sqrt()));
        cosine.filter(|x| x.is_finite() && (self.aa * self.bb).is_finite())
    }
}

/// A float as an integer, if it is one in the range of those that 64 bits have.
fn whole(value: f64) -> Option<i128> {
    /// From here on the sums of two fit no longer, and no integer of a tensor is as large.
    const LIMIT: f64 = 1e30;
    #[allow(clippy::cast_possible_truncation)] // a whole number below the limit
    (value.fract() == 0.0 && value.abs() < LIMIT).then_some(value as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn values_that_are_not_finite_count_and_are_in_no_sum() {
        let a = f32s(&[1.0, f32::NAN, f32::INFINITY, -0.0, f32::NAN, 2.0]);
        let b = f32s(&[1.0, f32::NAN, f32::INFINITY, 0.0, 3.0, 4.0]);
        let sums = Moments::of((Dtype::F32, &a), (Dtype::F32, &b), 10);
        assert_eq!((sums.elements, sums.differing, sums.not_finite), (6, 2, 1));
        assert_eq!((sums.first, sums.first_bits), (Some(14), Some(13)));
        assert_eq!(sums.differing_bits, 3);
        assert_eq!((sums.aa, sums.bb, sums.dd), (5.0, 17.0, 4.0));
        assert_eq!((sums.nmse(), sums.max), (Some(0.8), 2.0));
    }

    #[test]
    fn integers_are_compared_exactly() {
        let a = i64::MAX.to_le_bytes();
        let b = (i64::MAX - 1).to_le_bytes();
        let sums = Moments::of((Dtype::I64, &a), (Dtype::I64, &b), 0);
        assert_eq!((sums.differing, sums.max), (1, 1.0));
        let unsigned = (i64::MAX.unsigned_abs()).to_le_bytes();
        let sums = Moments::of((Dtype::I64, &a), (Dtype::U64, &unsigned), 0);
        assert_eq!((sums.differing, sums.differing_bits), (0, 0));
        // an F64 has no neighbour of 2⁵³ above it but 2⁵³ + 2
        let large = 1i64 << 53;
        for (integer, float, differing) in [
            (large + 1, 9_007_199_254_740_992.0, 1),
            (large, 9_007_199_254_740_992.0_f64, 0),
            (large, 0.5, 1),
            (large, f64::NAN, 1),
            (large, f64::INFINITY, 1),
        ] {
            let (a, b) = (integer.to_le_bytes(), float.to_le_bytes());
            let sums = Moments::of((Dtype::I64, &a), (Dtype::F64, &b), 0);
            assert_eq!(sums.differing, differing, "{integer} {float}");
        }
    }

    #[test]
    fn runs_are_added_in_order() {
        let values: Vec<f32> = (0u16..5000).map(|i| f32::from(i) * 0.37 - 700.0).collect();
        let other: Vec<f32> = values.iter().map(|v| v + 0.01).collect();
        let (a, b) = (f32s(&values), f32s(&other));
        let whole = Moments::of((Dtype::F32, &a), (Dtype::F32, &b), 0);
        let cut = 4 * 2 * RUN;
        let mut parts = Moments::of((Dtype::F32, &a[..cut]), (Dtype::F32, &b[..cut]), 0);
        let rest = Moments::of(
            (Dtype::F32, &a[cut..]),
            (Dtype::F32, &b[cut..]),
            2 * RUN as u64,
        );
        parts.append(&rest);
        assert_eq!((whole.elements, whole.differing), (5000, 5000));
        assert_eq!((parts.elements, parts.first), (5000, Some(0)));
        assert!((whole.dd - parts.dd).abs() < 1e-12 * whole.dd);
        let expected: f64 = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        assert!((whole.aa - expected).abs() < 1e-12 * expected);
    }
}
