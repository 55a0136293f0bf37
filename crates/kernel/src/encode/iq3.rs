//! IQ3_XXS and IQ3_S: points of grids of four values; the layouts are with their decoders (`block/iq3_xxs.rs`, `block/iq3_s.rs`).

use super::grid_search::{Found, SearchedValues, four_bits, make_even, maximum, without_signs};
use super::neighbours::{self, NeighbourGrid};
use super::{half, squares};

const LEVELS: i32 = 8;
/// `GROUP_MAX_EPS_IQ3_XXS`.
const EPS_IQ3_XXS: f32 = 1e-8;

fn weights(x: &[f32], importance: Option<&[f32]>, sigma: f32) -> [f32; 32] {
    let mut weights = [0.0; 32];
    for (i, (w, x)) in weights.iter_mut().zip(x).enumerate() {
        *w = match importance {
            Some(all) => all[i] * (sigma + x * x).sqrt(),
            None => x * x,
        };
    }
    weights
}

fn values<'v>(
    grid: &'static NeighbourGrid,
    x: &'v [f32],
    weights: &'v [f32],
    roots: &'v [f32],
) -> SearchedValues<'v> {
    SearchedValues {
        grid,
        levels: LEVELS,
        group: 4,
        x,
        weights,
        roots,
    }
}

pub(super) fn iq3_xxs(all: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (number, (x, out)) in all
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(98))
        .enumerate()
    {
        let sigma = 2.0 * squares(x) / 256.0;
        let (mut scales, mut words) = ([0.0; 8], [0_u32; 8]);
        for (ib, x) in x.chunks_exact(32).enumerate() {
            let importance = importance.map(|all| &all[256 * number + 32 * ib..]);
            let weights = weights(x, importance, sigma);
            let roots = weights.map(f32::sqrt);
            let (mut bare, mut signs) = ([0.0; 32], [0; 4]);
            without_signs(x, &mut bare, &mut signs);
            make_even(x, &weights, &mut bare, &mut signs);
            let max = maximum(&bare);
            if max < EPS_IQ3_XXS {
                continue;
            }
            let search = values(neighbours::iq3_xxs(), &bare, &weights, &roots);
            let first = max / (2 * LEVELS - 1) as f32;
            let Some((mut scale, mut found)) = search.search(max, 15, 0.2, first, Found::at(true))
            else {
                return false;
            };
            if found.is_off_grid(8) && scale > 0.0 {
                match search.again(scale, false, &mut found) {
                    Some(again) => scale = again,
                    None => return false,
                }
            }
            if scale < 0.0 {
                scale = -scale;
                signs = signs.map(|signs| !signs & 127);
            }
            for k in 0..8 {
                let Some(entry) = search.entry(k, &found) else {
                    return false;
                };
                out[2 + 8 * ib + k] = entry as u8;
            }
            let signs = signs.into_iter().enumerate();
            words[ib] = signs.fold(0, |word, (k, signs)| word | u32::from(signs) << (7 * k));
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            out.fill(0);
            continue;
        }
        let d = max / 31.0;
        out[..2].copy_from_slice(&half(d * 1.0125).0);
        let id = 1.0 / d;
        for ((word, scale), out) in words.iter().zip(scales).zip(out[66..].chunks_exact_mut(4)) {
            let scale = u32::from(four_bits(scale, id)) << 28;
            out.copy_from_slice(&(word | scale).to_le_bytes());
        }
    }
    true
}

pub(super) fn iq3_s(all: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (number, (x, out)) in all
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(110))
        .enumerate()
    {
        let sigma = 2.0 * squares(x) / 256.0;
        let mut scales = [0.0; 8];
        // the reference goes on in `qs` and `signs` only behind a sub-block that is not zero
        let mut written = 0;
        for (ib, x) in x.chunks_exact(32).enumerate() {
            let importance = importance.map(|all| &all[256 * number + 32 * ib..]);
            let weights = weights(x, importance, sigma);
            let roots = weights.map(f32::sqrt);
            let (mut bare, mut signs) = ([0.0; 32], [0; 4]);
            without_signs(x, &mut bare, &mut signs);
            let max = maximum(&bare);
            if max == 0.0 {
                continue;
            }
            let search = values(neighbours::iq3_s(), &bare, &weights, &roots);
            let first = max / (2 * LEVELS - 1) as f32;
            let Some((mut scale, mut found)) = search.search(max, 9, 0.2, first, Found::at(false))
            else {
                return false;
            };
            if found.is_off_grid(8) && scale > 0.0 {
                match search.again(scale, true, &mut found) {
                    Some(again) => scale = again,
                    None => return false,
                }
            }
            if scale < 0.0 {
                scale = -scale;
                signs = signs.map(|signs| !signs);
            }
            for k in 0..8 {
                let Some(entry) = search.entry(k, &found) else {
                    return false;
                };
                out[2 + 8 * written + k] = entry as u8;
                out[66 + ib] |= ((entry >> 8) as u8) << k;
            }
            out[74 + 4 * written..][..4].copy_from_slice(&signs);
            written += 1;
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            continue;
        }
        let d = max / 31.0;
        out[..2].copy_from_slice(&half(d * 1.033).0);
        let id = 1.0 / d;
        for (ib, scale) in scales.into_iter().enumerate() {
            out[106 + ib / 2] |= four_bits(scale, id) << (4 * (ib % 2));
        }
    }
    true
}
