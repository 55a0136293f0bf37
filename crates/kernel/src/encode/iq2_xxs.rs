//! Encoder of IQ2_XXS (`quantize_row_iq2_xxs_impl`); the layout is in `block/iq2_xxs.rs`.

use super::lanes::{EPS, EncodedColumns, Lanes, squares};
use super::magnitudes::{
    Again, GridTrials, Magnitudes, active, greatest_of, mean_square, put_scales, search,
    split_signs, weights, without_sign,
};
use super::{BlockEncoder, lattice, positive};
use crate::simd::Simd;

pub(super) struct Iq2Xxs;

impl BlockEncoder for Iq2Xxs {
    const LEN: usize = 256;
    const BYTES: usize = 66;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let trials = GridTrials {
            lattice: lattice::iq2_xxs(),
            max: 2,
            last: 6,
            step: 0.1,
            again: Again::Always,
        };
        let square = mean_square(simd, blocks, 1.0);
        let mut scales = [simd.splat(0.0); 8];
        let mut words = [[0u32; 16]; 8];
        for (g, x) in blocks.x.as_chunks::<32>().0.iter().enumerate() {
            let weights = weights(simd, blocks, g, square, squares(simd, x));
            let mut group = Magnitudes { x: *x, weights };
            let mut signs = [[0; 16]; 4];
            for (k, signs) in signs.iter_mut().enumerate() {
                let eight = 8 * k..8 * k + 8;
                let found = split_signs(simd, &mut group.x[eight.clone()], &weights[eight], true);
                *signs = simd.low_bytes(found);
            }
            let max = greatest_of(simd, &group.x);
            let (scale, _) = positive::search(simd, &group.x, &weights, 4);
            let extent = simd.mul(scale, simd.splat(3.0));
            let usable = simd.both(
                simd.le(simd.splat(EPS), max),
                simd.lt(simd.splat(0.0), extent),
            );
            let active = active(simd, blocks, usable);
            let fit = search::<S, 32, 8, 4>(
                simd,
                &group,
                (extent, scale),
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
                for k in 0..4 {
                    let index = trials
                        .lattice
                        .index(fit.points[k][lane])
                        .unwrap_or_default();
                    out.bytes[2 + 8 * g + k][lane] = index as u8;
                    let flip = if negative >> lane & 1 == 0 { 0 } else { 127 };
                    words[g][lane] |= u32::from(signs[k][lane] ^ flip) << (7 * k);
                }
            }
        }
        let (codes, has_any) = put_scales(simd, &scales, (31.0, 1.0, 15), 0, out);
        for (g, (word, code)) in words.iter().zip(codes).enumerate() {
            for lane in 0..16 {
                let word = (word[lane] | u32::from(code[lane]) << 28).to_le_bytes();
                for i in 0..4 {
                    let is_kept = has_any >> lane & 1 != 0;
                    out.bytes[6 + 8 * g + i][lane] = if is_kept { word[i] } else { 0 };
                    if !is_kept {
                        out.bytes[2 + 8 * g + i][lane] = 0;
                    }
                }
            }
        }
    }
}
