//! Blocks in lanes: transposition, the arithmetic that searches share, and the encoded bytes as columns.

use crate::half;
use crate::simd::Simd;

/// The most elements of a block.
pub(super) const MAX_LEN: usize = 256;
/// The most bytes of a block: Q6_K's.
pub(super) const MAX_BYTES: usize = 210;

/// Below this magnitude a group counts as zero, in most searches (`GROUP_MAX_EPS`).
pub(super) const EPS: f32 = 1e-15;

/// 16 blocks, one a lane.
pub(crate) struct Lanes<'l, S: Simd> {
    /// Vector `i` holds element `i` of each block.
    pub(super) x: &'l [S::Floats],
    /// Likewise the importance of each element's column.
    pub(super) importance: Option<&'l [S::Floats]>,
    /// The mean square of each block's row, for encoders that need it.
    pub(super) row_square: S::Floats,
    /// The lanes in use, from the first on; the others repeat a block.
    pub(super) count: usize,
}

/// The encoded bytes: `bytes[i][lane]` is byte `i` of a lane's block.
pub(crate) struct EncodedColumns {
    pub(super) bytes: [[u8; 16]; MAX_BYTES],
    /// The lanes whose scales are infinite or NaN, one bit each.
    pub(super) refused: u16,
}

impl EncodedColumns {
    /// Writes F16 numbers and returns them as they decode. A lane with an infinity or NaN is refused.
    #[inline(always)]
    pub(super) fn put_f16<S: Simd>(&mut self, simd: S, at: usize, x: S::Floats) -> S::Floats {
        let mut halves = [[0; 2]; 16];
        for (lane, (half, x)) in halves.iter_mut().zip(simd.to_f32_array(x)).enumerate() {
            let bits = half::f16(x);
            self.refused |= u16::from(bits & 0x7c00 == 0x7c00) << lane;
            *half = bits.to_le_bytes();
            self.bytes[at][lane] = half[0];
            self.bytes[at + 1][lane] = half[1];
        }
        simd.widen_f16(&halves)
    }

    /// Writes the low bytes of the lanes.
    #[inline(always)]
    pub(super) fn put<S: Simd>(&mut self, simd: S, at: usize, x: S::Ints) {
        self.bytes[at] = simd.low_bytes(x);
    }
}

/// Loads 16 blocks, which start at `starts`, of as many elements as `out` has vectors, which is a multiple of 16.
#[inline(always)]
pub(super) fn transpose<S: Simd>(
    simd: S,
    elements: &[f32],
    starts: [usize; 16],
    out: &mut [S::Floats],
) {
    for (sixteen, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let mut rows = [&[0.0; 16]; 16];
        for (row, start) in rows.iter_mut().zip(starts) {
            *row = elements[start + 16 * sixteen..]
                .first_chunk()
                .expect("a block has whole runs of 16 elements");
        }
        *out = simd.transpose_f32(rows);
    }
}

/// The mean square of each row, summed in order.
pub(super) fn mean_squares_of_rows(elements: &[f32], len: usize) -> Vec<f32> {
    let mut means = vec![0.0f32; elements.len() / len];
    // a sum in order waits for each addition: eight rows at a time keep the unit busy
    for (rows, means) in elements.chunks(8 * len).zip(means.chunks_mut(8)) {
        if let Ok(sums) = <&mut [f32; 8]>::try_from(&mut *means) {
            for i in 0..len {
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = rows[r * len + i];
                    *sum += x * x;
                }
            }
        } else {
            for (row, sum) in rows.chunks(len).zip(means.iter_mut()) {
                for x in row {
                    *sum += x * x;
                }
            }
        }
        for mean in means {
            *mean /= len as f32;
        }
    }
    means
}

/// The sum of squares, in order.
#[inline(always)]
pub(super) fn sum_squares<S: Simd>(simd: S, x: &[S::Floats]) -> S::Floats {
    let mut sum = simd.splat(0.0);
    for x in x {
        sum = simd.add(sum, simd.mul(*x, *x));
    }
    sum
}

/// The sum, in order.
#[inline(always)]
pub(super) fn sum<S: Simd>(simd: S, x: &[S::Floats]) -> S::Floats {
    let mut sum = simd.splat(0.0);
    for x in x {
        sum = simd.add(sum, *x);
    }
    sum
}

/// The weights of elements by their importance: `importance * sqrt(square + x * x)`.
#[inline(always)]
pub(super) fn weigh<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Floats; N],
    importance: &[S::Floats; N],
    square: S::Floats,
) -> [S::Floats; N] {
    let mut weights = *importance;
    for (weight, x) in weights.iter_mut().zip(x) {
        *weight = simd.mul(*weight, simd.sqrt(simd.add(square, simd.mul(*x, *x))));
    }
    weights
}

/// The squares of elements, their weights where there is no importance.
#[inline(always)]
pub(super) fn squares<S: Simd, const N: usize>(simd: S, x: &[S::Floats; N]) -> [S::Floats; N] {
    let mut weights = *x;
    for weight in &mut weights {
        *weight = simd.mul(*weight, *weight);
    }
    weights
}

/// The number of greatest magnitude with its sign, the first of equals, and the magnitude.
#[inline(always)]
pub(super) fn greatest<S: Simd>(simd: S, x: &[S::Floats]) -> [S::Floats; 2] {
    let (mut greatest, mut magnitude) = (simd.splat(0.0), simd.splat(0.0));
    for x in x {
        let found = simd.abs(*x);
        let is_greater = simd.lt(magnitude, found);
        greatest = simd.select(is_greater, *x, greatest);
        magnitude = simd.select(is_greater, found, magnitude);
    }
    [greatest, magnitude]
}

/// The least and the greatest number.
#[inline(always)]
pub(super) fn extent<S: Simd>(simd: S, x: &[S::Floats]) -> [S::Floats; 2] {
    let (mut min, mut max) = (x[0], x[0]);
    for x in &x[1..] {
        min = simd.select(simd.lt(*x, min), *x, min);
        max = simd.select(simd.lt(max, *x), *x, max);
    }
    [min, max]
}

/// Negates, zeros included.
#[inline(always)]
pub(super) fn negate<S: Simd>(simd: S, x: S::Floats) -> S::Floats {
    simd.sub(simd.splat(-0.0), x)
}

/// Whether a number is zero.
#[inline(always)]
pub(super) fn is_zero<S: Simd>(simd: S, x: S::Floats) -> S::Mask {
    let zero = simd.splat(0.0);
    simd.both(simd.le(x, zero), simd.le(zero, x))
}

/// `1 / x`, and 0 where `x` is 0.
#[inline(always)]
pub(super) fn inverse_or_zero<S: Simd>(simd: S, x: S::Floats) -> S::Floats {
    let inverse = simd.div(simd.splat(1.0), x);
    simd.select(is_zero(simd, x), simd.splat(0.0), inverse)
}

/// Rounds to the nearest integer, half to even, by the reference's means (`nearest_int`): beyond 22 bits the result wraps.
#[inline(always)]
pub(super) fn nearest<S: Simd>(simd: S, x: S::Floats) -> S::Ints {
    let bits = simd.to_bits(simd.add(x, simd.splat(12_582_912.0)));
    let low = simd.and_ints(bits, simd.splat_int(0x007f_ffff));
    simd.sub_ints(low, simd.splat_int(0x0040_0000))
}

/// [`nearest`], limited to a range.
#[inline(always)]
pub(super) fn nearest_within<S: Simd>(simd: S, x: S::Floats, min: i32, max: i32) -> S::Ints {
    let x = simd.min_ints(nearest(simd, x), simd.splat_int(max));
    simd.max_ints(x, simd.splat_int(min))
}

/// Rounds half away from zero. A number that no I32 holds, and NaN, become `i32::MIN`.
#[inline(always)]
pub(super) fn round_half_away<S: Simd>(simd: S, x: S::Floats) -> S::Ints {
    let whole = simd.truncate(x);
    let rest = simd.abs(simd.sub(x, simd.ints_to_f32(whole)));
    // from 2^23 on there is no rest
    let has_rest = simd.lt(simd.abs(x), simd.splat(8_388_608.0));
    let away = simd.both(has_rest, simd.le(simd.splat(0.5), rest));
    let step = simd.or_ints(simd.shr_ints(simd.to_bits(x), 31), simd.splat_int(1));
    simd.select_ints(away, simd.add_ints(whole, step), whole)
}

/// The low byte of each lane, with its sign.
#[inline(always)]
pub(super) fn as_i8<S: Simd>(simd: S, x: S::Ints) -> S::Ints {
    simd.shr_ints(simd.shl_ints(x, 24), 24)
}

/// `low | high << by`, of bytes.
#[inline(always)]
pub(super) fn join<S: Simd>(simd: S, low: S::Ints, high: S::Ints, by: u32) -> S::Ints {
    simd.or_ints(low, simd.shl_ints(high, by))
}
