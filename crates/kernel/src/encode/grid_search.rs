//! The search that IQ2 and IQ3 have in common: scales are tried, and groups of codes that are no point of the grid take the best of
//! the neighbouring points.

use super::neighbours::NeighbourGrid;
use super::search::nearest;

/// SearchedValues of a sub-block without their signs, their weights, and the size of a group.
pub(super) struct SearchedValues<'v> {
    pub(super) grid: &'static NeighbourGrid,
    /// Greatest number of codes plus one.
    pub(super) levels: i32,
    /// SearchedValues in a group: a point of the grid.
    pub(super) group: usize,
    pub(super) x: &'v [f32],
    pub(super) weights: &'v [f32],
    /// Square roots of the weights.
    pub(super) roots: &'v [f32],
}

/// The codes of a sub-block, and which of its groups were on the grid.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) codes: [u8; 32],
    on_grid: [bool; 8],
}

impl Found {
    /// Whether a group of the codes, of `groups`, is not on the grid.
    pub(super) fn is_off_grid(&self, groups: usize) -> bool {
        self.on_grid[..groups].contains(&false)
    }

    pub(super) fn at(start: bool) -> Self {
        Self {
            codes: [0; 32],
            on_grid: [start; 8],
        }
    }
}

impl SearchedValues<'_> {
    /// The codes of a group for `1 / id` as its scale.
    fn plain(&self, x: &[f32], id: f32, codes: &mut [u8]) {
        for (x, code) in x.iter().zip(codes) {
            *code = nearest(0.5 * (id * x - 1.0)).clamp(0, self.levels - 1) as u8;
        }
    }

    /// The neighbour with the least error (`iq2_find_best_neighbour`); `None` if all errors are infinite.
    fn best(&self, neighbours: &[u16], group: usize, scale: f32) -> Option<u16> {
        let range = self.group * group..self.group * (group + 1);
        let (x, roots) = (&self.x[range.clone()], &self.roots[range]);
        let mut best = (None, f32::MAX);
        for &entry in neighbours {
            let mut error = 0.0;
            for ((&q, &x), &w) in self.grid.point(entry).iter().zip(x).zip(roots) {
                let diff = scale * f32::from(q) - x;
                error += w * diff * diff;
            }
            if error < best.1 {
                best = (Some(entry), error);
            }
        }
        best.0
    }

    /// Codes for a scale, all of them on the grid.
    fn codes_for(&self, id: f32, scale: f32) -> Option<Found> {
        let mut found = Found::at(true);
        for (group, x) in self.x.chunks_exact(self.group).enumerate() {
            found.on_grid[group] = self.place(group, x, id, scale, &mut found.codes)?;
        }
        Some(found)
    }

    /// Codes of a group; whether they were on the grid before. `None` if no point of it is near.
    fn place(
        &self,
        group: usize,
        x: &[f32],
        id: f32,
        scale: f32,
        codes: &mut [u8; 32],
    ) -> Option<bool> {
        let own = &mut codes[self.group * group..][..self.group];
        self.plain(x, id, own);
        match self.grid.find(self.grid.pack(own)) {
            Ok(_) => Some(true),
            Err(neighbours) => {
                let entry = self.best(neighbours, group, scale)?;
                own.copy_from_slice(&self.grid.codes(entry)[..self.group]);
                Some(false)
            }
        }
    }

    /// Sums of weighted products for a scale.
    fn sums(&self, codes: &[u8; 32]) -> (f32, f32) {
        let (mut sumqx, mut sumq2) = (0.0, 0.0);
        for ((&x, &w), &code) in self.x.iter().zip(self.weights).zip(codes) {
            let q = f32::from(2 * code + 1);
            sumqx += w * x * q;
            sumq2 += w * q * q;
        }
        (sumqx, sumq2)
    }

    /// The best of some trials, `id = (2 · levels − 1 + step · n) / max`, from a scale at the beginning.
    pub(super) fn search(
        &self,
        max: f32,
        steps: i32,
        step: f32,
        mut scale: f32,
        mut found: Found,
    ) -> Option<(f32, Found)> {
        let mut best = 0.0;
        for n in -steps..=steps {
            let id = ((2 * self.levels - 1) as f32 + n as f32 * step) / max;
            let tried = self.codes_for(id, 1.0 / id)?;
            let (sumqx, sumq2) = self.sums(&tried.codes);
            if sumq2 > 0.0 && sumqx * sumqx > best * sumq2 {
                scale = sumqx / sumq2;
                best = scale * sumqx;
                found = tried;
            }
        }
        Some((scale, found))
    }

    /// Codes again by the best scale: of all groups, or of those that were off the grid. Returns the scale of these codes.
    pub(super) fn again(&self, scale: f32, all: bool, found: &mut Found) -> Option<f32> {
        let id = 1.0 / scale;
        for (group, x) in self.x.chunks_exact(self.group).enumerate() {
            if all || !found.on_grid[group] {
                self.place(group, x, id, scale, &mut found.codes)?;
            }
        }
        let (sumqx, sumq2) = self.sums(&found.codes);
        Some(if sumq2 > 0.0 { sumqx / sumq2 } else { scale })
    }

    /// The entry of a group of codes.
    pub(super) fn entry(&self, group: usize, found: &Found) -> Option<u16> {
        let own = &found.codes[self.group * group..][..self.group];
        self.grid.find(self.grid.pack(own)).ok()
    }
}

/// SearchedValues without their signs, and the signs of each eight.
pub(super) fn without_signs(x: &[f32], out: &mut [f32], signs: &mut [u8]) {
    for ((x, out), signs) in x.chunks_exact(8).zip(out.chunks_exact_mut(8)).zip(signs) {
        *signs = 0;
        for (i, (&x, out)) in x.iter().zip(out).enumerate() {
            let is_positive = x >= 0.0;
            *out = if is_positive { x } else { -x };
            *signs |= u8::from(!is_positive) << i;
        }
    }
}

/// Makes the number of minuses in each eight even: the value that matters least changes its sign.
pub(super) fn make_even(x: &[f32], weights: &[f32], out: &mut [f32], signs: &mut [u8]) {
    let rows = x
        .chunks_exact(8)
        .zip(weights.chunks_exact(8))
        .zip(out.chunks_exact_mut(8));
    for (((x, weights), out), signs) in rows.zip(signs) {
        if signs.count_ones() % 2 == 1 {
            let mut least = (0, weights[0] * x[0] * x[0]);
            for i in 1..8 {
                let matters = weights[i] * x[i] * x[i];
                if matters < least.1 {
                    least = (i, matters);
                }
            }
            out[least.0] = -out[least.0];
            *signs ^= 1 << least.0;
        }
        *signs &= 127;
    }
}

/// The greatest value, of which the first may be negative.
pub(super) fn maximum(x: &[f32]) -> f32 {
    x.iter()
        .skip(1)
        .fold(x[0], |max, &x| if max > x { max } else { x })
}

/// Scales as codes of four bits, odd multiples of the step.
pub(super) fn four_bits(scale: f32, id: f32) -> u8 {
    nearest(0.5 * (id * scale - 1.0)).clamp(0, 15) as u8
}
