//! IQ2_XXS, IQ2_XS and IQ2_S: points of grids of eight values; the layouts are with their decoders (`block/iq2_xxs.rs` …).

use super::grid_search::{Found, SearchedValues, four_bits, make_even, maximum, without_signs};
use super::neighbours;
use super::search::{EPS, positive};
use super::{half, squares};

const LEVELS: i32 = 3;
/// `GROUP_MAX_EPS_IQ2_S`.
const EPS_IQ2_S: f32 = 1e-8;

pub(super) fn iq2_xxs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    let Some(importance) = importance else {
        return false;
    };
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(66))
        .enumerate()
    {
        let sigma = squares(x) / 256.0;
        let (mut scales, mut words) = ([0.0; 8], [[0_u32; 2]; 8]);
        for (ib, x) in x.chunks_exact(32).enumerate() {
            let importance = &importance[256 * number + 32 * ib..][..32];
            let mut weights = [0.0; 32];
            for ((w, x), q) in weights.iter_mut().zip(x).zip(importance) {
                *w = q * (sigma + x * x).sqrt();
            }
            let roots = weights.map(f32::sqrt);
            let (mut bare, mut signs) = ([0.0; 32], [0; 4]);
            without_signs(x, &mut bare, &mut signs);
            make_even(x, &weights, &mut bare, &mut signs);
            if maximum(&bare) < EPS {
                continue;
            }
            let mut found = Found::at(true);
            let scale = positive(LEVELS + 1, &bare, &mut found.codes, &weights);
            let most = scale * LEVELS as f32;
            if most <= 0.0 {
                continue;
            }
            let search = SearchedValues {
                grid: neighbours::iq2_xxs(),
                levels: LEVELS,
                group: 8,
                x: &bare,
                weights: &weights,
                roots: &roots,
            };
            let Some((mut scale, mut found)) = search.search(most, 6, 0.1, scale, found) else {
                return false;
            };
            if scale > 0.0 {
                match search.again(scale, true, &mut found) {
                    Some(again) => scale = again,
                    None => return false,
                }
            }
            if scale < 0.0 {
                scale = -scale;
                signs = signs.map(|signs| !signs & 127);
            }
            for (k, signs) in signs.into_iter().enumerate() {
                let Some(entry) = search.entry(k, &found) else {
                    return false;
                };
                words[ib][0] |= u32::from(entry) << (8 * k);
                words[ib][1] |= u32::from(signs) << (7 * k);
            }
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            continue;
        }
        let d = max / 31.0;
        out[..2].copy_from_slice(&half(d).0);
        let id = 1.0 / d;
        for ((words, scale), out) in words.iter().zip(scales).zip(out[2..].chunks_exact_mut(8)) {
            let scale = u32::from(four_bits(scale, id)) << 28;
            out[..4].copy_from_slice(&words[0].to_le_bytes());
            out[4..].copy_from_slice(&(words[1] | scale).to_le_bytes());
        }
    }
    true
}

/// The search of 16 values, which IQ2_XS and IQ2_S share: the scale, its codes' entries, and the signs.
fn sixteen(
    grid: &'static neighbours::NeighbourGrid,
    bare: &[f32; 16],
    weights: &[f32; 16],
    eps: f32,
) -> Option<Option<(f32, [u16; 2])>> {
    let max = maximum(bare);
    if max < eps {
        return Some(None);
    }
    let roots = weights.map(f32::sqrt);
    let search = SearchedValues {
        grid,
        levels: LEVELS,
        group: 8,
        x: bare,
        weights,
        roots: &roots,
    };
    let first = max / (2 * LEVELS - 1) as f32;
    let (mut scale, mut found) = search.search(max, 9, 0.1, first, Found::at(true))?;
    if found.is_off_grid(2) && scale > 0.0 {
        scale = search.again(scale, false, &mut found)?;
    }
    Some(Some((
        scale,
        [search.entry(0, &found)?, search.entry(1, &found)?],
    )))
}

pub(super) fn iq2_xs(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    let Some(importance) = importance else {
        return false;
    };
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(74))
        .enumerate()
    {
        let sigma = squares(x) / 256.0;
        let (mut scales, mut words) = ([0.0; 16], [0_u16; 32]);
        for (ib, x) in x.chunks_exact(16).enumerate() {
            let importance = &importance[256 * number + 16 * ib..][..16];
            let mut weights = [0.0; 16];
            for ((w, x), q) in weights.iter_mut().zip(x).zip(importance) {
                *w = q * (sigma + x * x).sqrt();
            }
            let (mut bare, mut signs) = ([0.0; 16], [0; 2]);
            without_signs(x, &mut bare, &mut signs);
            make_even(x, &weights, &mut bare, &mut signs);
            let (mut scale, entries) = match sixteen(neighbours::iq2_xs(), &bare, &weights, EPS) {
                None => return false,
                Some(None) => continue,
                Some(Some(found)) => found,
            };
            if scale < 0.0 {
                scale = -scale;
                signs = signs.map(|signs| !signs & 127);
            }
            for k in 0..2 {
                words[2 * ib + k] = entries[k] | u16::from(signs[k]) << 9;
            }
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            continue;
        }
        let d = max / 31.0;
        out[..2].copy_from_slice(&half(d).0);
        let id = 1.0 / d;
        for (word, out) in words.iter().zip(out[2..66].chunks_exact_mut(2)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        for (ib, scale) in scales.into_iter().enumerate() {
            out[66 + ib / 2] |= four_bits(scale, id) << (4 * (ib % 2));
        }
    }
    true
}

pub(super) fn iq2_s(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(82))
        .enumerate()
    {
        let sigma = 2.0 * squares(x) / 256.0;
        let mut scales = [0.0; 16];
        for (ib, x) in x.chunks_exact(16).enumerate() {
            let mut weights = [0.0; 16];
            for (i, (w, x)) in weights.iter_mut().zip(x).enumerate() {
                *w = match importance {
                    Some(all) => all[256 * number + 16 * ib + i] * (sigma + x * x).sqrt(),
                    None => 0.25 * sigma + x * x,
                };
            }
            let (mut bare, mut signs) = ([0.0; 16], [0; 2]);
            without_signs(x, &mut bare, &mut signs);
            let (mut scale, entries) =
                match sixteen(neighbours::iq2_s(), &bare, &weights, EPS_IQ2_S) {
                    None => return false,
                    Some(None) => continue,
                    Some(Some(found)) => found,
                };
            if scale < 0.0 {
                scale = -scale;
                signs = signs.map(|signs| !signs);
            }
            for k in 0..2 {
                let at = 2 * ib + k;
                out[2 + at] = entries[k] as u8;
                out[66 + at / 4] |= ((entries[k] >> 8) as u8) << (2 * (at % 4));
                out[34 + at] = signs[k];
            }
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            continue;
        }
        let d = max / 31.0;
        out[..2].copy_from_slice(&half(d * 0.9875).0);
        let id = 1.0 / d;
        for (ib, scale) in scales.into_iter().enumerate() {
            out[74 + ib / 2] |= four_bits(scale, id) << (4 * (ib % 2));
        }
    }
    true
}
