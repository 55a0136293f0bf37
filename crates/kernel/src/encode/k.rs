//! Q2_K to Q6_K: superblocks of 256 with scales of sub-blocks; the layouts are with their decoders (`block/q2_k.rs` …).

use super::search::{EPS, Trials, improved, nearest, positive, symmetric, with_minimum};
use super::{half, squares};

/// The weights of a superblock's values, from importance and size: `q · √(sigma + x²)`.
fn important(x: &[f32], importance: &[f32], sigma: f32) -> [f32; 256] {
    let mut weights = [0.0; 256];
    for ((weight, x), q) in weights.iter_mut().zip(x).zip(importance) {
        *weight = q * (sigma + x * x).sqrt();
    }
    weights
}

/// The superblocks of a row, each with the importance of its columns.
fn blocks<'r>(
    values: &'r [f32],
    importance: Option<&'r [f32]>,
    out: &'r mut [u8],
    bytes: usize,
) -> impl Iterator<Item = (&'r [f32], Option<&'r [f32]>, &'r mut [u8])> {
    let columns = move |number: usize| importance.map(|all| &all[256 * number..][..256]);
    let rows = values.chunks_exact(256).zip(out.chunks_exact_mut(bytes));
    rows.enumerate()
        .map(move |(number, (x, out))| (x, columns(number), out))
}

/// Codes of two bits, 128 of them in 32 bytes.
fn pack_pairs(codes: &[u8; 256], out: &mut [u8]) {
    for (codes, out) in codes.chunks_exact(128).zip(out.chunks_exact_mut(32)) {
        for (l, out) in out.iter_mut().enumerate() {
            *out = codes[l] | codes[l + 32] << 2 | codes[l + 64] << 4 | codes[l + 96] << 6;
        }
    }
}

/// Codes again, by the scales as readers have them. A group whose scale is zero keeps the codes of the search.
fn again(x: &[f32], codes: &mut [u8], d: f32, min: f32, range: (i32, i32)) {
    if d == 0.0 {
        return;
    }
    let (least, most) = range;
    for (x, code) in x.iter().zip(codes) {
        *code = (nearest((x + min) / d).clamp(least, most) - least) as u8;
    }
}

/// The sum of the weights of each sub-block, and the search of each.
struct Groups<const N: usize> {
    scales: [f32; N],
    mins: [f32; N],
    sums: [f32; N],
}

impl<const N: usize> Groups<N> {
    /// Searches scales and minima of sub-blocks.
    fn search(
        x: &[f32],
        weights: &[f32; 256],
        nmax: i32,
        trials: Trials,
        codes: &mut [u8; 256],
    ) -> Self {
        let len = 256 / N;
        let mut made = Self {
            scales: [0.0; N],
            mins: [0.0; N],
            sums: [0.0; N],
        };
        for group in 0..N {
            let range = len * group..len * (group + 1);
            let weights = &weights[range.clone()];
            made.sums[group] = weights.iter().fold(0.0, |sum, w| sum + w);
            (made.scales[group], made.mins[group]) =
                with_minimum(nmax, &x[range.clone()], weights, &mut codes[range], trials);
        }
        made
    }
}

pub(super) fn q2_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    const PLAIN: Trials = Trials {
        first: -0.5,
        step: 0.1,
        steps: 15,
        absolute: true,
    };
    for (x, importance, out) in blocks(values, importance, out, 84) {
        let mut codes = [0; 256];
        let (mut scales, mut mins) = ([0; 16], [0; 16]);
        let (d, dmin) = match importance {
            None => {
                let mut weights = [0.0; 256];
                weights.iter_mut().zip(x).for_each(|(w, x)| *w = x.abs());
                let found = Groups::<16>::search(x, &weights, 3, PLAIN, &mut codes);
                (
                    steps(&found.scales, 15.0, &mut scales),
                    steps(&found.mins, 15.0, &mut mins),
                )
            }
            Some(importance) => {
                let weights = important(x, importance, squares(x) / 256.0);
                let found = Groups::<16>::search(x, &weights, 3, Trials::WEIGHTED, &mut codes);
                let d = positive(15, &found.scales, &mut scales, &found.sums);
                (d, positive(15, &found.mins, &mut mins, &found.sums))
            }
        };
        let ((d_bytes, d), (dmin_bytes, dmin)) = (half(d), half(dmin));
        for j in 0..16 {
            out[j] = scales[j] | mins[j] << 4;
            let (scale, min) = (out[j] & 15, out[j] >> 4);
            let range = 16 * j..16 * (j + 1);
            again(
                &x[range.clone()],
                &mut codes[range],
                d * f32::from(scale),
                dmin * f32::from(min),
                (0, 3),
            );
        }
        pack_pairs(&codes, &mut out[16..80]);
        out[80..82].copy_from_slice(&d_bytes);
        out[82..].copy_from_slice(&dmin_bytes);
    }
    true
}

/// Scales in steps of the greatest one's share. Returns the step.
fn steps(scales: &[f32], most: f32, codes: &mut [u8]) -> f32 {
    let max = scales
        .iter()
        .fold(0.0_f32, |max, &scale| if scale > max { scale } else { max });
    if max > 0.0 {
        let inverse = most / max;
        for (scale, code) in scales.iter().zip(codes) {
            *code = nearest(inverse * scale) as u8;
        }
        max / most
    } else {
        codes.fill(0);
        0.0
    }
}

pub(super) fn q3_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, importance, out) in blocks(values, importance, out, 110) {
        let mut codes = [0; 256];
        let (mut found, mut sums) = ([0.0; 16], [0.0; 16]);
        let mut steps = [0_u8; 16];
        let d = match importance {
            None => {
                for (j, found) in found.iter_mut().enumerate() {
                    let range = 16 * j..16 * (j + 1);
                    *found = improved(4, &x[range.clone()], &mut codes[range]);
                }
                let (max, _) = super::search::greatest(&found);
                if max == 0.0 {
                    0.0
                } else {
                    let inverse = -32.0 / max;
                    for (step, scale) in steps.iter_mut().zip(found) {
                        // a byte with a sign, before it is bounded
                        let byte = nearest(inverse * scale) as i8;
                        *step = (byte.clamp(-32, 31) + 32).cast_unsigned();
                    }
                    1.0 / inverse
                }
            }
            Some(importance) => {
                let weights = important(x, importance, 2.0 * squares(x) / 256.0);
                for j in 0..16 {
                    let range = 16 * j..16 * (j + 1);
                    let weights = &weights[range.clone()];
                    sums[j] = weights.iter().fold(0.0, |sum, w| sum + w);
                    found[j] = symmetric(4, &x[range.clone()], &mut codes[range], weights);
                }
                symmetric(32, &found, &mut steps, &sums)
            }
        };
        // scales of a superblock of zeros are not stored, but for what the weighted search leaves: zeros too
        let is_stored = importance.is_some() || d != 0.0;
        let (d_bytes, d) = half(d);
        for (j, step) in steps.into_iter().enumerate().filter(|_| is_stored) {
            match j {
                0..8 => out[96 + j] = step & 15,
                _ => out[96 + j - 8] |= (step & 15) << 4,
            }
            out[104 + j % 4] |= step >> 4 << (2 * (j / 4));
        }
        for j in 0..16 {
            let low = match j {
                0..8 => out[96 + j] & 15,
                _ => out[96 + j - 8] >> 4,
            };
            let step = low | (out[104 + j % 4] >> (2 * (j / 4)) & 3) << 4;
            let scale = d * (f32::from(step) - 32.0);
            let range = 16 * j..16 * (j + 1);
            again(&x[range.clone()], &mut codes[range], scale, 0.0, (-4, 3));
        }
        for (j, code) in codes.iter_mut().enumerate() {
            if *code > 3 {
                out[j % 32] |= 1 << (j / 32);
                *code -= 4;
            }
        }
        pack_pairs(&codes, &mut out[32..96]);
        out[108..].copy_from_slice(&d_bytes);
    }
    true
}

/// Scales and minima of Q4_K and Q5_K, and the codes made by them; returns the 16 bytes in front of the codes.
fn with_six_bits(
    x: &[f32],
    importance: Option<&[f32]>,
    nmax: i32,
    plain: Trials,
    codes: &mut [u8; 256],
) -> [u8; 16] {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    let (d, dmin) = match importance {
        None => {
            let mut weights = [0.0; 256];
            for (weights, x) in weights.chunks_exact_mut(32).zip(x.chunks_exact(32)) {
                let average = (squares(x) / 32.0).sqrt();
                weights
                    .iter_mut()
                    .zip(x)
                    .for_each(|(w, x)| *w = average + x.abs());
            }
            let found = Groups::<8>::search(x, &weights, nmax, plain, codes);
            let d = steps(&found.scales, 63.0, &mut scales);
            let dmin = steps(&found.mins, 63.0, &mut mins);
            scales
                .iter_mut()
                .chain(&mut mins)
                .for_each(|code| *code = (*code).min(63));
            (d, dmin)
        }
        Some(importance) => {
            let weights = important(x, importance, 2.0 * squares(x) / 256.0);
            let found = Groups::<8>::search(x, &weights, nmax, Trials::WEIGHTED, codes);
            let d = positive(63, &found.scales, &mut scales, &found.sums);
            (d, positive(63, &found.mins, &mut mins, &found.sums))
        }
    };
    let ((d_bytes, d), (dmin_bytes, dmin)) = (half(d), half(dmin));
    let mut head = [0; 16];
    head[..2].copy_from_slice(&d_bytes);
    head[2..4].copy_from_slice(&dmin_bytes);
    for j in 0..8 {
        let (scale, min) = (scales[j], mins[j]);
        match j {
            0..4 => {
                head[4 + j] = scale;
                head[8 + j] = min;
            }
            _ => {
                head[8 + j] = scale & 15 | (min & 15) << 4;
                head[j] |= scale >> 4 << 6;
                head[4 + j] |= min >> 4 << 6;
            }
        }
    }
    for j in 0..8 {
        let (scale, min) = (scales[j] & 63, mins[j] & 63);
        let range = 32 * j..32 * (j + 1);
        again(
            &x[range.clone()],
            &mut codes[range],
            d * f32::from(scale),
            dmin * f32::from(min),
            (0, nmax),
        );
    }
    head
}

pub(super) fn q4_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    const PLAIN: Trials = Trials {
        first: -1.0,
        step: 0.1,
        steps: 20,
        absolute: false,
    };
    for (x, importance, out) in blocks(values, importance, out, 144) {
        let mut codes = [0; 256];
        let head = with_six_bits(x, importance, 15, PLAIN, &mut codes);
        out[..16].copy_from_slice(&head);
        for (codes, out) in codes.chunks_exact(64).zip(out[16..].chunks_exact_mut(32)) {
            for (l, out) in out.iter_mut().enumerate() {
                *out = codes[l] | codes[l + 32] << 4;
            }
        }
    }
    true
}

pub(super) fn q5_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    const PLAIN: Trials = Trials {
        first: -0.5,
        step: 0.1,
        steps: 15,
        absolute: false,
    };
    for (x, importance, out) in blocks(values, importance, out, 176) {
        let mut codes = [0; 256];
        let head = with_six_bits(x, importance, 31, PLAIN, &mut codes);
        out[..16].copy_from_slice(&head);
        for (part, codes) in codes.chunks_exact(64).enumerate() {
            for l in 0..32 {
                let (low, high) = (codes[l], codes[l + 32]);
                out[16 + l] |= (low >> 4) << (2 * part) | (high >> 4) << (2 * part + 1);
                out[48 + 32 * part + l] = low & 15 | (high & 15) << 4;
            }
        }
    }
    true
}

pub(super) fn q6_k(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> bool {
    for (x, importance, out) in blocks(values, importance, out, 210) {
        let mut codes = [0; 256];
        let mut found = [0.0; 16];
        for (j, found) in found.iter_mut().enumerate() {
            let range = 16 * j..16 * (j + 1);
            let own = &x[range.clone()];
            let mut weights = [0.0; 16];
            match importance {
                Some(importance) => weights.copy_from_slice(&importance[range.clone()]),
                None => weights.iter_mut().zip(own).for_each(|(w, x)| *w = x * x),
            }
            *found = symmetric(32, own, &mut codes[range], &weights);
        }
        let (max, amax) = super::search::greatest(&found);
        if amax < EPS {
            continue;
        }
        let inverse = -128.0 / max;
        let (d_bytes, d) = half(1.0 / inverse);
        for (j, scale) in found.into_iter().enumerate() {
            // not bounded below: the greatest one is −128
            let step = nearest(inverse * scale).min(127) as i8;
            out[192 + j] = step.cast_unsigned();
            let range = 16 * j..16 * (j + 1);
            again(
                &x[range.clone()],
                &mut codes[range],
                d * f32::from(step),
                0.0,
                (-32, 31),
            );
        }
        for (part, codes) in codes.chunks_exact(128).enumerate() {
            for l in 0..32 {
                let [q1, q2, q3, q4] = [codes[l], codes[l + 32], codes[l + 64], codes[l + 96]];
                out[64 * part + l] = q1 & 15 | (q3 & 15) << 4;
                out[64 * part + 32 + l] = q2 & 15 | (q4 & 15) << 4;
                out[128 + 32 * part + l] = q1 >> 4 | q2 >> 4 << 2 | q3 >> 4 << 4 | q4 >> 4 << 6;
            }
        }
        out[208..].copy_from_slice(&d_bytes);
    }
    true
}
