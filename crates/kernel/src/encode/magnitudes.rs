//! The search that IQ2 and IQ3 share: magnitudes of a group of 16 or 32 as points of a grid, and a scale.
//!
//! Magnitudes are `scale * (2 * code + 1)`. Eight elements (IQ2) or four (IQ3) are a point; a point off the grid is replaced
//! by its best neighbour. Trial scales and sums are made for 16 blocks at once, the neighbours are searched block by block.

use super::lanes::{nearest, nearest_within, sum_squares, weigh};
use super::lattice::Lattice;
use super::{EncodedColumns, Lanes};
use crate::simd::Simd;

/// The differences between types.
pub(super) struct GridTrials {
    pub(super) lattice: &'static Lattice,
    /// The greatest code.
    pub(super) max: i32,
    /// Trials are `-last` to `last`.
    pub(super) last: i32,
    pub(super) step: f32,
    pub(super) again: Again,
}

/// Which points are searched again with the best scale.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// All.
    Always,
    /// All, if the best trial had points off the grid.
    AllIfOff,
    /// The points that were off the grid.
    Off,
}

/// The points of a group of 16 blocks, and their scales.
pub(super) struct GridFit<S: Simd, const P: usize> {
    /// Packed points.
    pub(super) points: [[i32; 16]; P],
    pub(super) scale: S::Floats,
}

/// The elements of a group, `N` of each block.
pub(super) struct Magnitudes<S: Simd, const N: usize> {
    pub(super) x: [S::Floats; N],
    pub(super) weights: [S::Floats; N],
}

/// Searches a scale and points. `extent` is what a trial's scale is measured by, `scale` the scale to begin with; lanes that
/// are not `active` give nothing that is used. `P` points have `G` of the `N` elements each.
#[inline(always)]
pub(super) fn search<S: Simd, const N: usize, const G: usize, const P: usize>(
    simd: S,
    group: &Magnitudes<S, N>,
    (extent, scale): (S::Floats, S::Floats),
    trials: &GridTrials,
    active: u16,
    refused: &mut u16,
) -> GridFit<S, P> {
    let zero = simd.splat(0.0);
    let bits = if G == 8 { 2 } else { 3 };
    let lanes = PointLanes::new(simd, group);
    let limit = (2 * trials.max + 1) as f32;
    let (mut scale, mut best) = (scale, zero);
    let mut points = [simd.splat_int(0); P];
    // a bit per lane, by point
    let mut off = [if trials.again == Again::Off {
        0
    } else {
        u16::MAX
    }; P];
    for trial in -trials.last..=trials.last {
        let inverse = simd.div(simd.splat(limit + trial as f32 * trials.step), extent);
        let this_scale = simd.to_f32_array(simd.div(simd.splat(1.0), inverse));
        let mut found = [simd.splat_int(0); P];
        let mut off_aux = [0; P];
        for (p, found) in found.iter_mut().enumerate() {
            let rounded = round_point::<S, N, G>(simd, group, p, inverse, trials.max, bits);
            let mut packed = simd.to_int_array(rounded);
            off_aux[p] =
                lanes.replace::<S, G>(simd, p, &mut packed, &this_scale, trials, active, refused);
            *found = simd.load_ints(&packed);
        }
        let [with_x, with_code] = sums::<S, N, G, P>(simd, group, &found, bits);
        let better = simd.lt(simd.mul(best, with_code), simd.mul(with_x, with_x));
        let better = simd.both(simd.lt(zero, with_code), better);
        let ratio = simd.div(with_x, with_code);
        scale = simd.select(better, ratio, scale);
        best = simd.select(better, simd.mul(ratio, with_x), best);
        let is_better = simd.mask_bits(better);
        for p in 0..P {
            points[p] = simd.select_ints(better, found[p], points[p]);
            off[p] = off[p] & !is_better | off_aux[p] & is_better;
        }
    }
    let mut any_off = 0;
    for off in off {
        any_off |= off;
    }
    let positive = simd.mask_bits(simd.lt(zero, scale));
    let again = positive
        & active
        & if trials.again == Again::Always {
            u16::MAX
        } else {
            any_off
        };
    if again != 0 {
        let inverse = simd.div(simd.splat(1.0), scale);
        let this_scale = simd.to_f32_array(scale);
        for (p, point) in points.iter_mut().enumerate() {
            let lanes_again = if trials.again == Again::Off {
                again & off[p]
            } else {
                again
            };
            let rounded = round_point::<S, N, G>(simd, group, p, inverse, trials.max, bits);
            let mut packed = simd.to_int_array(rounded);
            lanes.replace::<S, G>(
                simd,
                p,
                &mut packed,
                &this_scale,
                trials,
                lanes_again,
                refused,
            );
            let mut kept = simd.to_int_array(*point);
            for (lane, (kept, packed)) in kept.iter_mut().zip(packed).enumerate() {
                if lanes_again >> lane & 1 != 0 {
                    *kept = packed;
                }
            }
            *point = simd.load_ints(&kept);
        }
        let [with_x, with_code] = sums::<S, N, G, P>(simd, group, &points, bits);
        let ratio = simd.div(with_x, with_code);
        let has_any = simd.mask_bits(simd.lt(zero, with_code)) & again;
        let mut scales = simd.to_f32_array(scale);
        for (lane, (scale, ratio)) in scales.iter_mut().zip(simd.to_f32_array(ratio)).enumerate() {
            if has_any >> lane & 1 != 0 {
                *scale = ratio;
            }
        }
        scale = simd.load_f32(&scales);
    }
    let mut arrays = [[0; 16]; P];
    for (array, point) in arrays.iter_mut().zip(points) {
        *array = simd.to_int_array(point);
    }
    GridFit {
        points: arrays,
        scale,
    }
}

/// The packed point `p` of rounded elements.
#[inline(always)]
fn round_point<S: Simd, const N: usize, const G: usize>(
    simd: S,
    group: &Magnitudes<S, N>,
    p: usize,
    inverse: S::Floats,
    max: i32,
    bits: u32,
) -> S::Ints {
    let mut packed = simd.splat_int(0);
    for i in 0..G {
        let scaled = simd.sub(simd.mul(inverse, group.x[G * p + i]), simd.splat(1.0));
        let code = nearest_within(simd, simd.mul(simd.splat(0.5), scaled), 0, max);
        packed = simd.or_ints(packed, simd.shl_ints(code, bits * i as u32));
    }
    packed
}

/// `Σ w * x * q` and `Σ w * q * q` with `q = 2 * code + 1`.
#[inline(always)]
fn sums<S: Simd, const N: usize, const G: usize, const P: usize>(
    simd: S,
    group: &Magnitudes<S, N>,
    points: &[S::Ints; P],
    bits: u32,
) -> [S::Floats; 2] {
    let (mut with_x, mut with_code) = (simd.splat(0.0), simd.splat(0.0));
    let mask = simd.splat_int((1 << bits) - 1);
    for (p, point) in points.iter().enumerate() {
        for i in 0..G {
            let code = simd.and_ints(simd.shr_ints(*point, bits * i as u32), mask);
            let odd = simd.or_ints(simd.shl_ints(code, 1), simd.splat_int(1));
            let (q, weight) = (simd.ints_to_f32(odd), group.weights[G * p + i]);
            with_x = simd.add(with_x, simd.mul(simd.mul(weight, group.x[G * p + i]), q));
            with_code = simd.add(with_code, simd.mul(simd.mul(weight, q), q));
        }
    }
    [with_x, with_code]
}

/// The elements and the roots of their weights, block by block.
struct PointLanes<const N: usize> {
    x: [[f32; N]; 16],
    roots: [[f32; N]; 16],
}

impl<const N: usize> PointLanes<N> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, group: &Magnitudes<S, N>) -> Self {
        let mut lanes = Self {
            x: [[0.0; N]; 16],
            roots: [[0.0; N]; 16],
        };
        for i in 0..N {
            let x = simd.to_f32_array(group.x[i]);
            let roots = simd.to_f32_array(simd.sqrt(group.weights[i]));
            for lane in 0..16 {
                lanes.x[lane][i] = x[lane];
                lanes.roots[lane][i] = roots[lane];
            }
        }
        lanes
    }

    /// Replaces points that are off the grid in the lanes `which`, and returns these lanes.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "one inner loop, called from two places"
    )]
    fn replace<S: Simd, const G: usize>(
        &self,
        simd: S,
        p: usize,
        packed: &mut [i32; 16],
        scales: &[f32; 16],
        trials: &GridTrials,
        which: u16,
        refused: &mut u16,
    ) -> u16 {
        let odd = [
            1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0,
        ];
        // codes of 2 bits are looked up with a bit of the next code
        let four = [
            1.0, 3.0, 5.0, 7.0, 1.0, 3.0, 5.0, 7.0, 1.0, 3.0, 5.0, 7.0, 1.0, 3.0, 5.0, 7.0,
        ];
        let values = simd.load_f32(if G == 8 { &four } else { &odd });
        let mut off = 0;
        for (lane, point) in packed.iter_mut().enumerate() {
            if which >> lane & 1 == 0 || trials.lattice.index(*point).is_some() {
                continue;
            }
            off |= 1 << lane;
            let x = self.x[lane][G * p..]
                .first_chunk()
                .expect("a point is within its group");
            let roots = self.roots[lane][G * p..].first_chunk().expect("likewise");
            let scaled = simd.mul(simd.splat(scales[lane]), values);
            match trials
                .lattice
                .nearest::<S, G>(simd, *point, (x, roots), scaled)
            {
                Some(found) => *point = found,
                None => *refused |= 1 << lane,
            }
        }
        off
    }
}

/// The mean square of a block, times `factor`.
#[inline(always)]
pub(super) fn mean_square<S: Simd>(simd: S, blocks: &Lanes<'_, S>, factor: f32) -> S::Floats {
    let sum = simd.mul(simd.splat(factor), sum_squares(simd, blocks.x));
    simd.div(sum, simd.splat(256.0))
}

/// The weights of group `g` by importance; by `otherwise` of the elements without.
#[inline(always)]
pub(super) fn weights<S: Simd, const N: usize>(
    simd: S,
    blocks: &Lanes<'_, S>,
    g: usize,
    square: S::Floats,
    otherwise: [S::Floats; N],
) -> [S::Floats; N] {
    match blocks.importance {
        Some(importance) => {
            let x = &blocks.x.as_chunks::<N>().0[g];
            weigh(simd, x, &importance.as_chunks::<N>().0[g], square)
        }
        None => otherwise,
    }
}

/// The magnitudes of eight elements, and a byte of signs per lane. With `even`, their number of minuses is even and the
/// eighth sign is left out: if it is odd, the element that weighs least changes its sign, and its magnitude is negative.
#[inline(always)]
pub(super) fn split_signs<S: Simd>(
    simd: S,
    x: &mut [S::Floats],
    weights: &[S::Floats],
    even: bool,
) -> S::Ints {
    let (zero, none) = (simd.splat(0.0), simd.splat_int(0));
    let (mut signs, mut count) = (none, none);
    let mut least = simd.mul(simd.mul(weights[0], x[0]), x[0]);
    let mut place = simd.splat_int(1);
    for i in 0..8 {
        let square = simd.mul(simd.mul(weights[i], x[i]), x[i]);
        let bit = simd.splat_int(1 << i);
        let less = simd.lt(square, least);
        least = simd.select(less, square, least);
        place = simd.select_ints(less, bit, place);
        let is_negative = simd.lt(x[i], zero);
        signs = simd.or_ints(signs, simd.select_ints(is_negative, bit, none));
        count = simd.add_ints(
            count,
            simd.select_ints(is_negative, simd.splat_int(1), none),
        );
        x[i] = simd.select(is_negative, simd.abs(x[i]), x[i]);
    }
    if !even {
        return signs;
    }
    let is_odd = simd.eq_ints(simd.and_ints(count, simd.splat_int(1)), simd.splat_int(1));
    let place = simd.select_ints(is_odd, place, none);
    for (i, x) in x.iter_mut().enumerate() {
        let flips = simd.eq_ints(place, simd.splat_int(1 << i));
        *x = simd.select(flips, simd.sub(simd.splat(-0.0), *x), *x);
    }
    // exclusive or: one of both is clear, or both are the same bit
    let both = simd.and_ints(signs, place);
    let signs = simd.sub_ints(simd.or_ints(signs, place), both);
    simd.and_ints(signs, simd.splat_int(127))
}

/// The greatest of magnitudes that may be negative.
#[inline(always)]
pub(super) fn greatest_of<S: Simd>(simd: S, x: &[S::Floats]) -> S::Floats {
    let mut max = x[0];
    for x in &x[1..] {
        max = simd.select(simd.lt(*x, max), max, *x);
    }
    max
}

/// The lanes in use in which `mask` is true.
#[inline(always)]
pub(super) fn active<S: Simd>(simd: S, blocks: &Lanes<'_, S>, mask: S::Mask) -> u16 {
    simd.mask_bits(mask) & (u16::MAX >> (16 - blocks.count.min(16)))
}

/// Keeps `x` in the lanes `which`, else zero.
#[inline(always)]
pub(super) fn only<S: Simd>(simd: S, which: u16, x: S::Floats) -> S::Floats {
    let mut lanes = simd.to_f32_array(x);
    for (lane, x) in lanes.iter_mut().enumerate() {
        if which >> lane & 1 == 0 {
            *x = 0.0;
        }
    }
    simd.load_f32(&lanes)
}

/// A scale that is not negative, and the lanes where it was; a NaN is refused.
#[inline(always)]
pub(super) fn without_sign<S: Simd>(
    simd: S,
    scale: S::Floats,
    active: u16,
    out: &mut EncodedColumns,
) -> (S::Floats, u16) {
    out.refused |= active & !simd.mask_bits(simd.le(scale, scale));
    let was_negative = simd.mask_bits(simd.lt(scale, simd.splat(0.0))) & active;
    (only(simd, active, simd.abs(scale)), was_negative)
}

/// Writes `d` times `factor` and returns the codes of the scales, from 0 to `max`, and the lanes that have a scale.
#[inline(always)]
pub(super) fn put_scales<S: Simd, const N: usize>(
    simd: S,
    scales: &[S::Floats; N],
    (divisor, factor, max): (f32, f32, i32),
    at: usize,
    out: &mut EncodedColumns,
) -> ([[u8; 16]; N], u16) {
    let zero = simd.splat(0.0);
    let mut greatest = zero;
    for scale in scales {
        greatest = simd.select(simd.lt(*scale, greatest), greatest, *scale);
    }
    let has_any = simd.lt(zero, greatest);
    let d = simd.div(greatest, simd.splat(divisor));
    let stored = simd.mul(d, simd.splat(factor));
    out.put_f16(simd, at, simd.select(has_any, stored, zero));
    let inverse = simd.div(simd.splat(1.0), d);
    let mut codes = [[0; 16]; N];
    for (code, scale) in codes.iter_mut().zip(scales) {
        let found = scale_code(simd, *scale, inverse, max);
        *code = simd.low_bytes(simd.select_ints(has_any, found, simd.splat_int(0)));
    }
    (codes, simd.mask_bits(has_any))
}

/// The code of a scale, `scale = d * (2 * code + 1)`.
#[inline(always)]
pub(super) fn scale_code<S: Simd>(
    simd: S,
    scale: S::Floats,
    inverse: S::Floats,
    max: i32,
) -> S::Ints {
    let scaled = simd.sub(simd.mul(inverse, scale), simd.splat(1.0));
    let code = nearest(simd, simd.mul(simd.splat(0.5), scaled));
    simd.max_ints(simd.min_ints(code, simd.splat_int(max)), simd.splat_int(0))
}
