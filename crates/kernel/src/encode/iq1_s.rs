//! Encoder of IQ1_S (`quantize_row_iq1_s_impl`); the layout is in `block/iq1_s.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest};
use super::magnitudes::{active, mean_square, put_scales};
use super::ternary::{DOWN, TernaryGroup, UP, grid, level};
use crate::simd::Simd;

pub(super) struct Iq1S;

impl BlockEncoder for Iq1S {
    const LEN: usize = 256;
    const BYTES: usize = 50;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let square = mean_square(simd, blocks, 2.0);
        let mut scales = [simd.splat(0.0); 8];
        let (mut words, mut downs) = ([[0u16; 16]; 8], [0u16; 8]);
        for g in 0..8 {
            let group = TernaryGroup::<S, 32>::new(simd, blocks, g, square);
            let [_, max] = greatest(simd, &group.x);
            let usable = active(simd, blocks, simd.le(simd.splat(1e-12), max));
            let (scale, splits) = split(simd, &group);
            let mut found = simd.to_f32_array(scale);
            for lane in 0..16 {
                let split = splits[lane];
                if usable >> lane & 1 == 0 || split < 0 {
                    found[lane] = 0.0;
                    continue;
                }
                let flipped = found[lane] < 0.0;
                let is_down = (split & 1 != 0) != flipped;
                let levels = if is_down { &DOWN } else { &UP };
                let scale = &mut found[lane];
                *scale = scale.abs();
                let bounds = ((split >> 16) as usize, (split >> 8 & 255) as usize);
                let mut points: [i32; 4] = group.points(lane, bounds, flipped);
                let mut is_off = false;
                for (p, point) in points.iter_mut().enumerate() {
                    is_off |= group.replace(simd, lane, (p, point), (*scale, levels), out);
                }
                if is_off {
                    let (mut with_x, mut with_level) = (0.0, 0.0);
                    for (p, point) in points.iter().enumerate() {
                        for i in 0..8 {
                            let weight = simd.to_f32_array(group.weights[8 * p + i])[lane];
                            let x = simd.to_f32_array(group.x[8 * p + i])[lane];
                            let q = levels[level(*point, i)];
                            with_x += weight * q * x;
                            with_level += weight * q * q;
                        }
                    }
                    if with_x > 0.0 && with_level > 0.0 {
                        *scale = with_x / with_level;
                    }
                }
                out.refused |= u16::from(scale.is_nan()) << lane;
                downs[g] |= u16::from(is_down) << lane;
                for (p, point) in points.into_iter().enumerate() {
                    let index = grid().index(point).unwrap_or_default();
                    out.bytes[2 + 4 * g + p][lane] = index as u8;
                    words[g][lane] |= index >> 8 << (3 * p);
                }
            }
            scales[g] = simd.load_f32(&found);
        }
        let (codes, has_any) = put_scales(simd, &scales, (15.0, 1.125, 7), 0, out);
        for g in 0..8 {
            for lane in 0..16 {
                // a block without a scale has no shifts either
                let is_down = downs[g] >> lane & has_any >> lane & 1;
                let upper = u16::from(codes[g][lane]) | is_down << 3;
                let word = (words[g][lane] | upper << 12).to_le_bytes();
                out.bytes[34 + 2 * g][lane] = word[0];
                out.bytes[35 + 2 * g][lane] = word[1];
            }
        }
    }
}

/// The best scale, and where the sorted elements are split: `first << 16 | second << 8 | is_down`, or -1.
#[inline(always)]
fn split<S: Simd>(simd: S, group: &TernaryGroup<S, 32>) -> (S::Floats, [i32; 16]) {
    let zero = simd.splat(0.0);
    let (mut with_x, mut weight) = ([zero; 33], [zero; 33]);
    for (j, ([product, found], _)) in group.in_order(simd).into_iter().enumerate() {
        with_x[j + 1] = simd.add(with_x[j], product);
        weight[j + 1] = simd.add(weight[j], found);
    }
    let (mut best, mut scale) = (simd.splat(-f32::MAX), zero);
    let mut place = simd.splat_int(-1);
    for first in 0..=32 {
        for second in first..=32 {
            let x = [
                simd.sub(with_x[first], with_x[0]),
                simd.sub(with_x[second], with_x[first]),
                simd.sub(with_x[32], with_x[second]),
            ];
            let w = [
                simd.sub(weight[first], weight[0]),
                simd.sub(weight[second], weight[first]),
                simd.sub(weight[32], weight[second]),
            ];
            for (is_down, levels) in [(0, &UP), (1, &DOWN)] {
                let mut sum_x = simd.mul(x[0], simd.splat(levels[0]));
                let mut sum_w = simd.mul(w[0], simd.splat(levels[0]));
                sum_w = simd.mul(sum_w, simd.splat(levels[0]));
                for i in 1..3 {
                    let level = simd.splat(levels[i]);
                    sum_x = simd.add(sum_x, simd.mul(x[i], level));
                    sum_w = simd.add(sum_w, simd.mul(simd.mul(w[i], level), level));
                }
                let better = simd.lt(simd.mul(best, sum_w), simd.mul(sum_x, sum_x));
                let better = simd.both(simd.lt(zero, sum_w), better);
                if simd.mask_bits(better) != 0 {
                    let ratio = simd.div(sum_x, sum_w);
                    scale = simd.select(better, ratio, scale);
                    best = simd.select(better, simd.mul(ratio, sum_x), best);
                    let here = (first << 16 | second << 8) as i32 | is_down;
                    place = simd.select_ints(better, simd.splat_int(here), place);
                }
            }
        }
    }
    (scale, simd.to_int_array(place))
}
