//! Encoder of IQ1_M (`quantize_row_iq1_m_impl`); the layout is in `block/iq1_m.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest};
use super::magnitudes::{active, greatest_of, mean_square, scale_code};
use super::ternary::{DOWN, TernaryGroup, UP, grid, level};
use crate::half;
use crate::simd::Simd;

pub(super) struct Iq1M;

impl BlockEncoder for Iq1M {
    const LEN: usize = 256;
    const BYTES: usize = 56;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let zero = simd.splat(0.0);
        let square = mean_square(simd, blocks, 2.0);
        let mut scales = [zero; 16];
        // for each group and lane the points, and the shifts of its halves: bit 0 the second, bit 1 the first
        let (mut all_points, mut all_shifts) = ([[[0i32; 2]; 16]; 16], [[0; 16]; 16]);
        for g in 0..16 {
            let group = TernaryGroup::<S, 16>::new(simd, blocks, g, square);
            let [_, max] = greatest(simd, &group.x);
            let usable = active(simd, blocks, simd.le(simd.splat(1e-7), max));
            let (scale, splits) = split(simd, &group);
            let mut found = simd.to_f32_array(scale);
            for lane in 0..16 {
                let split = splits[lane];
                if usable >> lane & 1 == 0 || split < 0 {
                    found[lane] = 0.0;
                    continue;
                }
                let scale = &mut found[lane];
                let flipped = *scale < 0.0;
                *scale = scale.abs();
                let shifts = if flipped { 3 - (split & 3) } else { split & 3 };
                let bounds = ((split >> 16) as usize, (split >> 8 & 255) as usize);
                let mut points: [i32; 2] = group.points(lane, bounds, flipped);
                let mut is_off = false;
                for (p, point) in points.iter_mut().enumerate() {
                    let levels = levels(shifts, p);
                    is_off |= group.replace(simd, lane, (p, point), (*scale, levels), out);
                }
                if is_off {
                    let (mut with_x, mut with_level) = (0.0, 0.0);
                    for (p, point) in points.iter().enumerate() {
                        for i in 0..8 {
                            let weight = simd.to_f32_array(group.weights[8 * p + i])[lane];
                            let x = simd.to_f32_array(group.x[8 * p + i])[lane];
                            let q = levels(shifts, p)[level(*point, i)];
                            with_x += weight * q * x;
                            with_level += weight * q * q;
                        }
                    }
                    if with_x > 0.0 && with_level > 0.0 {
                        *scale = with_x / with_level;
                    }
                }
                out.refused |= u16::from(scale.is_nan()) << lane;
                (all_points[g][lane], all_shifts[g][lane]) = (points, shifts);
                let [a, b] = points;
                let [a, b] = [grid().index(a), grid().index(b)];
                let [a, b] = [a.unwrap_or_default(), b.unwrap_or_default()];
                out.bytes[2 * g][lane] = a as u8;
                out.bytes[2 * g + 1][lane] = b as u8;
                out.bytes[32 + g][lane] = (a >> 8 | b >> 8 << 4) as u8;
            }
            scales[g] = simd.load_f32(&found);
        }
        put_scales(
            simd,
            blocks,
            square,
            &scales,
            (&all_points, &all_shifts),
            out,
        );
    }
}

/// The levels of half `p` of a group.
#[inline(always)]
fn levels(shifts: i32, p: usize) -> &'static [f32; 3] {
    if shifts >> (1 - p) & 1 == 0 {
        &UP
    } else {
        &DOWN
    }
}

/// Writes the scales and shifts, and the scale of the block that fits the chosen codes best.
#[inline(always)]
fn put_scales<S: Simd>(
    simd: S,
    blocks: &Lanes<'_, S>,
    square: S::Floats,
    scales: &[S::Floats; 16],
    (points, shifts): (&[[[i32; 2]; 16]; 16], &[[i32; 16]; 16]),
    out: &mut EncodedColumns,
) {
    let zero = simd.splat(0.0);
    let max = greatest_of(simd, scales);
    let has_any = simd.mask_bits(simd.lt(zero, max));
    let d = simd.div(max, simd.splat(15.0));
    let inverse = simd.div(simd.splat(1.0), d);
    let mut words = [[0u16; 16]; 4];
    let (mut with_x, mut with_level) = (zero, zero);
    for g in 0..16 {
        let code = scale_code(simd, scales[g], inverse, 7);
        let codes = simd.to_int_array(code);
        for lane in 0..16 {
            if has_any >> lane & 1 != 0 {
                words[g / 4][lane] |= (codes[lane] as u16) << (3 * (g % 4));
                // the first half's shift is the sign bit of the low nibble, the second half's of the high one
                let (first, second) = (shifts[g][lane] >> 1 & 1, shifts[g][lane] & 1);
                out.bytes[32 + g][lane] |= (first << 3 | second << 7) as u8;
            }
        }
        let factor = simd.or_ints(simd.shl_ints(code, 1), simd.splat_int(1));
        let factor = simd.ints_to_f32(factor);
        let x = &blocks.x.as_chunks::<16>().0[g];
        let weights = match blocks.importance {
            Some(importance) => {
                super::lanes::weigh(simd, x, &importance.as_chunks::<16>().0[g], square)
            }
            None => super::lanes::squares(simd, x),
        };
        for i in 0..16 {
            let mut values = [0.0; 16];
            for (lane, value) in values.iter_mut().enumerate() {
                let levels = levels(shifts[g][lane], i / 8);
                *value = levels[level(points[g][lane][i / 8], i % 8)];
            }
            let q = simd.mul(simd.load_f32(&values), factor);
            with_x = simd.add(with_x, simd.mul(simd.mul(weights[i], q), x[i]));
            with_level = simd.add(with_level, simd.mul(simd.mul(weights[i], q), q));
        }
    }
    let fitted = simd.div(with_x, with_level);
    let d = simd.select(simd.lt(zero, with_level), fitted, d);
    let d = simd.to_f32_array(simd.mul(d, simd.splat(1.1125)));
    for lane in 0..16 {
        let bits = if has_any >> lane & 1 == 0 {
            0
        } else {
            half::f16(d[lane])
        };
        out.refused |= u16::from(bits & 0x7c00 == 0x7c00) << lane;
        for (i, words) in words.iter().enumerate() {
            let word = (words[lane] | (bits >> (4 * i) & 15) << 12).to_le_bytes();
            out.bytes[48 + 2 * i][lane] = word[0];
            out.bytes[49 + 2 * i][lane] = word[1];
        }
    }
}

/// The best scale, and where the sorted elements are split: `first << 16 | second << 8 | shifts`, or -1. Each half has a
/// shift of its own, so that sums are kept by half; as the levels are one apart, three sums are one product and two sums.
#[inline(always)]
fn split<S: Simd>(simd: S, group: &TernaryGroup<S, 16>) -> (S::Floats, [i32; 16]) {
    let zero = simd.splat(0.0);
    let (mut sums_x, mut sums_w) = ([[zero; 17]; 2], [[zero; 17]; 2]);
    for (j, ([product, weight], half)) in group.in_order(simd).into_iter().enumerate() {
        let is_first = simd.le(half, zero);
        for h in 0..2 {
            let (old_x, old_w) = (sums_x[h][j], sums_w[h][j]);
            let (new_x, new_w) = (simd.add(old_x, product), simd.add(old_w, weight));
            let [(x, other_x), (w, other_w)] = if h == 0 {
                [(new_x, old_x), (new_w, old_w)]
            } else {
                [(old_x, new_x), (old_w, new_w)]
            };
            sums_x[h][j + 1] = simd.select(is_first, x, other_x);
            sums_w[h][j + 1] = simd.select(is_first, w, other_w);
        }
    }
    let (mut best, mut scale) = (simd.splat(-f32::MAX), zero);
    let mut place = simd.splat_int(-1);
    for first in 0..=16 {
        for second in first..=16 {
            // by half and shift
            let (mut x, mut w) = ([[zero; 2]; 2], [[zero; 2]; 2]);
            for h in 0..2 {
                let below = simd.add(sums_x[h][first], sums_x[h][second]);
                for (shift, levels) in [(0, &UP), (1, &DOWN)] {
                    let upper = simd.splat(levels[2]);
                    let [a, b, c] = [
                        levels[0] * levels[0],
                        levels[1] * levels[1],
                        levels[2] * levels[2],
                    ];
                    x[h][shift] = simd.sub(simd.mul(sums_x[h][16], upper), below);
                    let total = simd.mul(simd.mul(sums_w[h][16], upper), upper);
                    let total = simd.add(total, simd.mul(sums_w[h][first], simd.splat(a - b)));
                    w[h][shift] = simd.add(total, simd.mul(sums_w[h][second], simd.splat(b - c)));
                }
            }
            for shifts in 0..4 {
                let sum_x = simd.add(x[0][shifts >> 1], x[1][shifts & 1]);
                let sum_w = simd.add(w[0][shifts >> 1], w[1][shifts & 1]);
                let better = simd.lt(simd.mul(best, sum_w), simd.mul(sum_x, sum_x));
                let better = simd.both(simd.lt(zero, sum_w), better);
                if simd.mask_bits(better) != 0 {
                    let ratio = simd.div(sum_x, sum_w);
                    scale = simd.select(better, ratio, scale);
                    best = simd.select(better, simd.mul(ratio, sum_x), best);
                    let here = (first << 16 | second << 8 | shifts) as i32;
                    place = simd.select_ints(better, simd.splat_int(here), place);
                }
            }
        }
    }
    (scale, simd.to_int_array(place))
}
