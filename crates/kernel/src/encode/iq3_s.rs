//! Encoder of IQ3_S (`quantize_row_iq3_s_impl`); the layout is in `block/iq3_s.rs`.
//!
//! The reference does not step over the indices and signs of a group of zeros: the next group is written in its place, with
//! the ninth bits of its indices and its scale in their own. Such a block decodes to other values than were meant. Its bytes
//! are reproduced here, as everywhere.

use super::lanes::{EncodedColumns, Lanes, squares};
use super::magnitudes::{
    Again, GridTrials, Magnitudes, active, greatest_of, mean_square, put_scales, search,
    split_signs, weights, without_sign,
};
use super::{BlockEncoder, lattice};
use crate::simd::Simd;

pub(super) struct Iq3S;

impl BlockEncoder for Iq3S {
    const LEN: usize = 256;
    const BYTES: usize = 110;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let trials = GridTrials {
            lattice: lattice::iq3_s(),
            max: 7,
            last: 9,
            step: 0.2,
            again: Again::AllIfOff,
        };
        let square = mean_square(simd, blocks, 2.0);
        let mut scales = [simd.splat(0.0); 8];
        // the groups that are written, by lane
        let mut written = [0; 16];
        for (g, x) in blocks.x.as_chunks::<32>().0.iter().enumerate() {
            let weights = weights(simd, blocks, g, square, squares(simd, x));
            let mut group = Magnitudes { x: *x, weights };
            let mut signs = [[0; 16]; 4];
            for (k, signs) in signs.iter_mut().enumerate() {
                let eight = 8 * k..8 * k + 8;
                let found = split_signs(simd, &mut group.x[eight.clone()], &weights[eight], false);
                *signs = simd.low_bytes(found);
            }
            let max = greatest_of(simd, &group.x);
            let active = active(simd, blocks, simd.lt(simd.splat(0.0), max));
            let scale = simd.div(max, simd.splat(15.0));
            let fit = search::<S, 32, 4, 8>(
                simd,
                &group,
                (max, scale),
                &trials,
                active,
                &mut out.refused,
            );
            let (scale, negative) = without_sign(simd, fit.scale, active, out);
            scales[g] = scale;
            for lane in 0..16 {
                if active >> lane & 1 == 0 {
                    continue;
                }
                let place = written[lane];
                written[lane] += 1;
                for (k, points) in fit.points.iter().enumerate() {
                    let index = trials.lattice.index(points[lane]).unwrap_or_default();
                    let [low, high] = index.to_le_bytes();
                    out.bytes[2 + 8 * place + k][lane] = low;
                    out.bytes[66 + g][lane] |= high << k;
                }
                for (k, signs) in signs.iter().enumerate() {
                    let flip = if negative >> lane & 1 == 0 { 0 } else { 255 };
                    out.bytes[74 + 4 * place + k][lane] = signs[lane] ^ flip;
                }
            }
        }
        let (codes, _) = put_scales(simd, &scales, (31.0, 1.033, 15), 0, out);
        for (i, [low, high]) in codes.as_chunks::<2>().0.iter().enumerate() {
            for lane in 0..16 {
                out.bytes[106 + i][lane] = low[lane] | high[lane] << 4;
            }
        }
    }
}
