//! Encoder of IQ2_XS (`quantize_row_iq2_xs_impl`); the layout is in `block/iq2_xs.rs`.

use super::lanes::{EPS, EncodedColumns, Lanes, squares};
use super::magnitudes::{
    Again, GridTrials, Magnitudes, active, greatest_of, mean_square, put_scales, search,
    split_signs, weights, without_sign,
};
use super::{BlockEncoder, lattice};
use crate::simd::Simd;

pub(super) struct Iq2Xs;

impl BlockEncoder for Iq2Xs {
    const LEN: usize = 256;
    const BYTES: usize = 74;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let trials = GridTrials {
            lattice: lattice::iq2_xs(),
            max: 2,
            last: 9,
            step: 0.1,
            again: Again::Off,
        };
        let square = mean_square(simd, blocks, 1.0);
        let mut scales = [simd.splat(0.0); 16];
        for (g, x) in blocks.x.as_chunks::<16>().0.iter().enumerate() {
            let weights = weights(simd, blocks, g, square, squares(simd, x));
            let mut group = Magnitudes { x: *x, weights };
            let mut signs = [[0; 16]; 2];
            for (k, signs) in signs.iter_mut().enumerate() {
                let eight = 8 * k..8 * k + 8;
                let found = split_signs(simd, &mut group.x[eight.clone()], &weights[eight], true);
                *signs = simd.low_bytes(found);
            }
            let max = greatest_of(simd, &group.x);
            let active = active(simd, blocks, simd.le(simd.splat(EPS), max));
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
                    let index = trials
                        .lattice
                        .index(fit.points[k][lane])
                        .unwrap_or_default();
                    let flip = if negative >> lane & 1 == 0 { 0 } else { 127 };
                    let word = (index | u16::from(signs[k][lane] ^ flip) << 9).to_le_bytes();
                    out.bytes[2 + 4 * g + 2 * k][lane] = word[0];
                    out.bytes[3 + 4 * g + 2 * k][lane] = word[1];
                }
            }
        }
        let (codes, has_any) = put_scales(simd, &scales, (31.0, 1.0, 15), 0, out);
        for lane in 0..16 {
            for (i, [low, high]) in codes.as_chunks::<2>().0.iter().enumerate() {
                out.bytes[66 + i][lane] = low[lane] | high[lane] << 4;
            }
            if has_any >> lane & 1 == 0 {
                for column in &mut out.bytes[2..66] {
                    column[lane] = 0;
                }
            }
        }
    }
}
