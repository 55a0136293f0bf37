//! Encoder of IQ2_S (`quantize_row_iq2_s_impl`); the layout is in `block/iq2_s.rs`.

use super::lanes::{EncodedColumns, Lanes};
use super::magnitudes::{
    Again, GridTrials, Magnitudes, active, greatest_of, mean_square, put_scales, search,
    split_signs, weights, without_sign,
};
use super::{BlockEncoder, lattice};
use crate::simd::Simd;

pub(super) struct Iq2S;

impl BlockEncoder for Iq2S {
    const LEN: usize = 256;
    const BYTES: usize = 82;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let trials = GridTrials {
            lattice: lattice::iq2_s(),
            max: 2,
            last: 9,
            step: 0.1,
            again: Again::Off,
        };
        let square = mean_square(simd, blocks, 2.0);
        let quarter = simd.mul(simd.splat(0.25), square);
        let mut scales = [simd.splat(0.0); 16];
        for (g, x) in blocks.x.as_chunks::<16>().0.iter().enumerate() {
            let mut otherwise = *x;
            for weight in &mut otherwise {
                *weight = simd.add(quarter, simd.mul(*weight, *weight));
            }
            let weights = weights(simd, blocks, g, square, otherwise);
            let mut group = Magnitudes { x: *x, weights };
            let mut signs = [[0; 16]; 2];
            for (k, signs) in signs.iter_mut().enumerate() {
                let eight = 8 * k..8 * k + 8;
                let found = split_signs(simd, &mut group.x[eight.clone()], &weights[eight], false);
                *signs = simd.low_bytes(found);
            }
            let max = greatest_of(simd, &group.x);
            let active = active(simd, blocks, simd.le(simd.splat(1e-8), max));
            let scale = simd.div(max, simd.splat(5.0));
            let fit = search::<S, 16, 8, 2>(
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
                for k in 0..2 {
                    let [low, high] = trials
                        .lattice
                        .index(fit.points[k][lane])
                        .unwrap_or_default()
                        .to_le_bytes();
                    let (i, flip) = (2 * g + k, if negative >> lane & 1 == 0 { 0 } else { 255 });
                    out.bytes[2 + i][lane] = low;
                    out.bytes[34 + i][lane] = signs[k][lane] ^ flip;
                    out.bytes[66 + i / 4][lane] |= high << (2 * (i % 4));
                }
            }
        }
        let (codes, _) = put_scales(simd, &scales, (31.0, 0.9875, 15), 0, out);
        for (i, [low, high]) in codes.as_chunks::<2>().0.iter().enumerate() {
            for lane in 0..16 {
                out.bytes[74 + i][lane] = low[lane] | high[lane] << 4;
            }
        }
    }
}
