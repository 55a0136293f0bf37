//! IQ1_S and IQ1_M: three levels with a shift, found exactly: values are sorted, and every split of them is tried; the layouts are with
//! their decoders (`block/iq1_s.rs`, `block/iq1_m.rs`).

use super::neighbours::{self, NeighbourGrid};
use super::search::nearest;
use super::{half, squares};

const DELTA: f32 = 0.125;
/// The three levels, shifted up.
const UP: [f32; 3] = [-1.0 + DELTA, DELTA, 1.0 + DELTA];
/// The three levels, shifted down.
const DOWN: [f32; 3] = [-1.0 - DELTA, -DELTA, 1.0 - DELTA];
/// `GROUP_MAX_EPS_IQ1_S`.
const EPS_IQ1_S: f32 = 1e-12;
/// `GROUP_MAX_EPS_IQ1_M`.
const EPS_IQ1_M: f32 = 1e-7;

/// The positions of values, the least value first. Equal values keep their order, on which sums depend.
fn sorted<const N: usize>(x: &[f32]) -> [usize; N] {
    let mut order = std::array::from_fn(|i| i);
    // finite values; both zeros are equal, as a comparison of floats has it
    order.sort_by(|&a: &usize, &b| x[a].partial_cmp(&x[b]).unwrap_or(std::cmp::Ordering::Equal));
    order
}

/// The entry whose values are nearest (`iq1_find_best_neighbour2`).
fn best(
    grid: &NeighbourGrid,
    neighbours: &[u16],
    x: &[f32],
    weights: &[f32],
    scale: f32,
    levels: &[f32; 3],
) -> Option<u16> {
    let mut best = (None, f32::MAX);
    for &entry in neighbours {
        let mut error = 0.0;
        for ((&code, &x), &w) in grid.codes(entry).iter().zip(x).zip(weights) {
            let diff = scale * levels[usize::from(code)] - x;
            error += w * diff * diff;
        }
        if error < best.1 {
            best = (Some(entry), error);
        }
    }
    best.0
}

/// The entries of eight codes each. Where one is off the grid, the scale is made anew; `levels` are the ones of each eight.
fn place(
    x: &[f32],
    weights: &[f32],
    codes: &[u8],
    levels: &[[f32; 3]],
    scale: &mut f32,
    entries: &mut [u16],
) -> Option<()> {
    let grid = neighbours::iq1();
    let mut is_on_grid = true;
    for (k, entry) in entries.iter_mut().enumerate() {
        let range = 8 * k..8 * (k + 1);
        *entry = match grid.find(grid.pack(&codes[range.clone()])) {
            Ok(entry) => entry,
            Err(neighbours) => {
                is_on_grid = false;
                best(
                    grid,
                    neighbours,
                    &x[range.clone()],
                    &weights[range],
                    *scale,
                    &levels[k],
                )?
            }
        };
    }
    if !is_on_grid {
        let (mut sumqx, mut sumq2) = (0.0, 0.0);
        for (k, &entry) in entries.iter().enumerate() {
            let range = 8 * k..8 * (k + 1);
            for ((&code, &x), &w) in grid
                .codes(entry)
                .iter()
                .zip(&x[range.clone()])
                .zip(&weights[range])
            {
                let q = levels[k][usize::from(code)];
                sumqx += w * q * x;
                sumq2 += w * q * q;
            }
        }
        if sumqx > 0.0 && sumq2 > 0.0 {
            *scale = sumqx / sumq2;
        }
    }
    Some(())
}

/// Codes by the two places where the sorted values are split.
fn split<const N: usize>(order: &[usize; N], (first, second): (usize, usize)) -> [u8; N] {
    let mut codes = [0; N];
    for (j, &i) in order.iter().enumerate() {
        codes[i] = u8::from(j >= first) + u8::from(j >= second);
    }
    codes
}

/// The greatest magnitude.
fn magnitude(x: &[f32]) -> f32 {
    x.iter()
        .fold(0.0, |max, x| if max > x.abs() { max } else { x.abs() })
}

pub(super) fn iq1_s(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    let Some(importance) = importance else {
        return false;
    };
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(50))
        .enumerate()
    {
        let sigma = 2.0 * squares(x) / 256.0;
        let (mut scales, mut heads) = ([0.0; 8], [0_u16; 8]);
        for (ib, x) in x.chunks_exact(32).enumerate() {
            let importance = &importance[256 * number + 32 * ib..][..32];
            let mut weights = [0.0; 32];
            for ((w, x), q) in weights.iter_mut().zip(x).zip(importance) {
                *w = q * (sigma + x * x).sqrt();
            }
            if magnitude(x) < EPS_IQ1_S {
                continue;
            }
            let Some((mut scale, codes, is_up)) = best_split(x, &weights) else {
                continue;
            };
            let levels = if is_up { UP } else { DOWN };
            let mut entries = [0; 4];
            if place(x, &weights, &codes, &[levels; 4], &mut scale, &mut entries).is_none() {
                return false;
            }
            for (k, entry) in entries.into_iter().enumerate() {
                out[2 + 4 * ib + k] = entry as u8;
                heads[ib] |= entry >> 8 << (3 * k);
            }
            heads[ib] |= u16::from(!is_up) << 15;
            scales[ib] = scale;
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        let mut id = 0.0;
        if max != 0.0 {
            let d = max / 15.0;
            out[..2].copy_from_slice(&half(d * 1.125).0);
            id = 1.0 / d;
        }
        for ((head, scale), out) in heads.iter().zip(scales).zip(out[34..].chunks_exact_mut(2)) {
            let step = nearest(0.5 * (id * scale - 1.0)).clamp(0, 7) as u16;
            let head = if max == 0.0 {
                head & 0xfff
            } else {
                head | step << 12
            };
            out.copy_from_slice(&head.to_le_bytes());
        }
    }
    true
}

/// The split of 32 values into three levels that leaves the least error, with either shift. `None` if nothing
/// matters.
fn best_split(x: &[f32], weights: &[f32; 32]) -> Option<(f32, [u8; 32], bool)> {
    let order: [usize; 32] = sorted(x);
    let (mut sumx, mut sumw) = ([0.0; 33], [0.0; 33]);
    for (j, &i) in order.iter().enumerate() {
        sumx[j + 1] = sumx[j] + weights[i] * x[i];
        sumw[j + 1] = sumw[j] + weights[i];
    }
    let mut best = -f32::MAX;
    let mut found = None;
    for first in 0..=32 {
        for second in first..=32 {
            let x = [
                sumx[first] - sumx[0],
                sumx[second] - sumx[first],
                sumx[32] - sumx[second],
            ];
            let w = [
                sumw[first] - sumw[0],
                sumw[second] - sumw[first],
                sumw[32] - sumw[second],
            ];
            for (levels, up) in [(UP, true), (DOWN, false)] {
                let sumqx = x[0] * levels[0] + x[1] * levels[1] + x[2] * levels[2];
                let sumq2 = w[0] * levels[0] * levels[0]
                    + w[1] * levels[1] * levels[1]
                    + w[2] * levels[2] * levels[2];
                if sumq2 > 0.0 && sumqx * sumqx > best * sumq2 {
                    let scale = sumqx / sumq2;
                    best = scale * sumqx;
                    found = Some((scale, (first, second), up));
                }
            }
        }
    }
    let (scale, at, is_up) = found?;
    let codes = split(&order, at);
    Some(match scale < 0.0 {
        true => (-scale, codes.map(|code| 2 - code), !is_up),
        false => (scale, codes, is_up),
    })
}

/// The levels of the two halves of 16 values, by the number of their combination.
fn halves(combination: usize) -> [[f32; 3]; 2] {
    let of = |is_up: bool| if is_up { UP } else { DOWN };
    [of(combination < 2), of(combination.is_multiple_of(2))]
}

/// Sums over the sorted values of one half of 16, up to each place.
struct HalfSums {
    x: [f32; 17],
    w: [f32; 17],
}

impl HalfSums {
    fn new(x: &[f32], weights: &[f32; 16], order: &[usize; 16], half: usize) -> Self {
        let mut sums = Self {
            x: [0.0; 17],
            w: [0.0; 17],
        };
        for (j, &i) in order.iter().enumerate() {
            let is_own = i / 8 == half;
            sums.x[j + 1] = if is_own {
                sums.x[j] + x[i] * weights[i]
            } else {
                sums.x[j]
            };
            sums.w[j + 1] = if is_own {
                sums.w[j] + weights[i]
            } else {
                sums.w[j]
            };
        }
        sums
    }

    /// Sums of weighted products of a split. The levels are one apart, so that they follow from the greatest one.
    fn split(&self, (first, second): (usize, usize), levels: &[f32; 3]) -> (f32, f32) {
        let [least, middle, most] = *levels;
        let squares = [
            least * least - middle * middle,
            middle * middle - most * most,
        ];
        let sumqx = most * self.x[16] - (self.x[first] + self.x[second]);
        let sumq2 =
            squares[1] * self.w[second] + (squares[0] * self.w[first] + most * self.w[16] * most);
        (sumqx, sumq2)
    }
}

/// The split of 16 values into three levels that leaves the least error, with either shift of each half. `None` if nothing matters.
fn best_split_of_halves(x: &[f32], weights: &[f32; 16]) -> Option<(f32, [u8; 16], usize)> {
    let order: [usize; 16] = sorted(x);
    let sums = [0, 1].map(|half| HalfSums::new(x, weights, &order, half));
    let mut best = -f32::MAX;
    let mut found = None;
    for first in 0..=16 {
        for second in first..=16 {
            let at = (first, second);
            let of = |half: usize| [UP, DOWN].map(|levels: [f32; 3]| sums[half].split(at, &levels));
            let (low, high) = (of(0), of(1));
            for combination in 0..4 {
                let (low, high) = (low[combination / 2], high[combination % 2]);
                let (sumqx, sumq2) = (low.0 + high.0, low.1 + high.1);
                if sumq2 > 0.0 && sumqx * sumqx > best * sumq2 {
                    let scale = sumqx / sumq2;
                    best = scale * sumqx;
                    found = Some((scale, at, combination));
                }
            }
        }
    }
    let (scale, at, combination) = found?;
    let codes = split(&order, at);
    Some(match scale < 0.0 {
        true => (-scale, codes.map(|code| 2 - code), 3 - combination),
        false => (scale, codes, combination),
    })
}

pub(super) fn iq1_m(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    /// Bits of `qh` for the shifts of both halves.
    const SHIFTS: [u8; 4] = [0x00, 0x80, 0x08, 0x88];
    for (number, (x, out)) in values
        .chunks_exact(256)
        .zip(out.chunks_exact_mut(56))
        .enumerate()
    {
        let sigma = 2.0 * squares(x) / 256.0;
        let weights = |ib: usize, x: &[f32]| -> [f32; 16] {
            std::array::from_fn(|i| match importance {
                Some(all) => all[256 * number + 16 * ib + i] * (sigma + x[i] * x[i]).sqrt(),
                None => x[i] * x[i],
            })
        };
        let (mut scales, mut combinations, mut entries) = ([0.0; 16], [0; 16], [[0_u16; 2]; 16]);
        for (ib, x) in x.chunks_exact(16).enumerate() {
            if magnitude(x) < EPS_IQ1_M {
                continue;
            }
            let weights = weights(ib, x);
            let Some((mut scale, codes, combination)) = best_split_of_halves(x, &weights) else {
                continue;
            };
            let levels = halves(combination);
            if place(x, &weights, &codes, &levels, &mut scale, &mut entries[ib]).is_none() {
                return false;
            }
            out[2 * ib] = entries[ib][0] as u8;
            out[2 * ib + 1] = entries[ib][1] as u8;
            out[32 + ib] = (entries[ib][0] >> 8 | entries[ib][1] >> 8 << 4) as u8;
            (scales[ib], combinations[ib]) = (scale, combination);
        }
        let max = scales.iter().fold(0.0_f32, |max, &scale| max.max(scale));
        if max == 0.0 {
            continue;
        }
        let mut d = max / 15.0;
        let id = 1.0 / d;
        let mut words = [0_u16; 4];
        let (mut sumqx, mut sumq2) = (0.0, 0.0);
        for (ib, x) in x.chunks_exact(16).enumerate() {
            let step = nearest(0.5 * (id * scales[ib] - 1.0)).clamp(0, 7);
            words[ib / 4] |= (step as u16) << (3 * (ib % 4));
            out[32 + ib] |= SHIFTS[combinations[ib]];
            // the scale of the block anew, from what is stored
            let weights = weights(ib, x);
            let levels = halves(combinations[ib]);
            for k in 0..2 {
                let codes = neighbours::iq1().codes(entries[ib][k]);
                for (j, code) in codes.into_iter().enumerate() {
                    let (x, w) = (x[8 * k + j], weights[8 * k + j]);
                    let q = levels[k][usize::from(code)] * (2 * step + 1) as f32;
                    sumqx += w * q * x;
                    sumq2 += w * q * q;
                }
            }
        }
        if sumq2 > 0.0 {
            d = sumqx / sumq2;
        }
        let bits = u16::from_le_bytes(half(d * 1.1125).0);
        for (i, (word, out)) in words.iter().zip(out[48..].chunks_exact_mut(2)).enumerate() {
            let nibble = bits >> (4 * i) & 15;
            out.copy_from_slice(&(word | nibble << 12).to_le_bytes());
        }
    }
    true
}
