//! Encoder of IQ3_XXS (`quantize_row_iq3_xxs_impl`); the layout is in `block/iq3_xxs.rs`.

use super::lanes::{EncodedColumns, Lanes, squares};
use super::magnitudes::{
    Again, GridTrials, Magnitudes, active, greatest_of, mean_square, put_scales, search,
    split_signs, weights, without_sign,
};
use super::{BlockEncoder, lattice};
use crate::simd::Simd;

pub(super) struct Iq3Xxs;

impl BlockEncoder for Iq3Xxs {
    const LEN: usize = 256;
    const BYTES: usize = 98;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let trials = GridTrials {
            lattice: lattice::iq3_xxs(),
            max: 7,
            last: 15,
            step: 0.2,
            again: Again::Off,
        };
        let square = mean_square(simd, blocks, 2.0);
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
            let active = active(simd, blocks, simd.le(simd.splat(1e-8), max));
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
                for (k, points) in fit.points.iter().enumerate() {
                    let index = trials.lattice.index(points[lane]).unwrap_or_default();
                    out.bytes[2 + 8 * g + k][lane] = index as u8;
                }
                for (k, signs) in signs.iter().enumerate() {
                    let flip = if negative >> lane & 1 == 0 { 0 } else { 127 };
                    words[g][lane] |= u32::from(signs[lane] ^ flip) << (7 * k);
                }
            }
        }
        let (codes, has_any) = put_scales(simd, &scales, (31.0, 1.0125, 15), 0, out);
        for lane in 0..16 {
            for (g, (word, code)) in words.iter().zip(codes).enumerate() {
                let word = (word[lane] | u32::from(code[lane]) << 28).to_le_bytes();
                for (i, byte) in word.into_iter().enumerate() {
                    out.bytes[66 + 4 * g + i][lane] = byte;
                }
            }
            if has_any >> lane & 1 == 0 {
                for column in &mut out.bytes[2..98] {
                    column[lane] = 0;
                }
            }
        }
    }
}
