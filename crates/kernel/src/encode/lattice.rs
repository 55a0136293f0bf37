//! The points of the IQ types' grids by their packed codes, and the neighbours of the points between.
//!
//! A point has eight coordinates of 2 bits (IQ1, IQ2) or four of 3 bits (IQ3), packed lowest first. A point off the grid has
//! a list of the grid's points at the least distances, by distance and then by index: `iq2xs_init_impl` and `iq3xs_init_impl`
//! sort the whole grid for each point; here distances are read from a table of half points, and only the near ones sorted.

use std::sync::OnceLock;

use crate::simd::Simd;
use crate::tables;

/// Zero for the first 16, then infinity: what is added to the sums of places in and beyond a list.
static WITHIN: [f32; 32] = {
    let mut within = [0.0; 32];
    let mut i = 16;
    while i < 32 {
        within[i] = f32::INFINITY;
        i += 1;
    }
    within
};

/// A grid and the lists of neighbours.
pub(super) struct Lattice {
    /// Bits of a coordinate.
    bits: u32,
    /// By packed point: the index of a point on the grid, or `!list`.
    map: Vec<i32>,
    /// Start and length in `neighbours`.
    lists: Vec<(u32, u32)>,
    /// Packed points; 16 more follow the last list.
    neighbours: Vec<u16>,
}

/// `IQ2_XXS` and so on, computed at the first use.
macro_rules! lattices {
    ($($name:ident $table:ident $bits:literal $distances:literal $code:expr;)*) => {$(
        pub(super) fn $name() -> &'static Lattice {
            static LATTICE: OnceLock<Lattice> = OnceLock::new();
            LATTICE.get_or_init(|| {
                let mut points = Vec::with_capacity(tables::$table.len());
                for entry in &tables::$table {
                    let mut point = 0;
                    for (i, byte) in (0..).zip(entry.to_le_bytes()) {
                        let code: fn(u8) -> u8 = $code;
                        point |= u16::from(code(byte)) << ($bits * i);
                    }
                    points.push(point);
                }
                Lattice::new(&points, $bits, $distances)
            })
        }
    )*};
}

lattices! {
    iq1 IQ1 2 3 |value| value.wrapping_add(1);
    iq2_xxs IQ2_XXS 2 2 |value| value >> 4;
    iq2_xs IQ2_XS 2 2 |value| value >> 4;
    iq2_s IQ2_S 2 1 |value| value >> 4;
    iq3_xxs IQ3_XXS 3 2 |value| value >> 3;
    iq3_s IQ3_S 3 3 |value| value >> 1;
}

impl Lattice {
    /// Lists for each point the grid's points at the least `distances` distances.
    fn new(grid: &[u16], bits: u32, distances: usize) -> Self {
        let (half_bits, size) = if bits == 2 {
            (8, 1 << 16)
        } else {
            (6, 1 << 12)
        };
        let half_mask = (1 << half_bits) - 1;
        let half = 1usize << half_bits;
        // squares of distances of half points
        let mut squares = vec![0u8; half * half];
        for (a, squares) in squares.chunks_mut(half).enumerate() {
            for (b, square) in squares.iter_mut().enumerate() {
                for at in (0..half_bits).step_by(bits as usize) {
                    let mask = (1 << bits) - 1;
                    *square += (a >> at & mask).abs_diff(b >> at & mask).pow(2) as u8;
                }
            }
        }
        let mut lattice = Self {
            bits,
            map: vec![i32::MIN; size],
            lists: Vec::new(),
            neighbours: Vec::new(),
        };
        for (index, point) in (0..).zip(grid) {
            lattice.map[usize::from(*point)] = index;
        }
        let mut found = vec![0u8; grid.len()];
        for point in 0..size {
            // a code of 2 bits is at most 2
            let has_three = bits == 2 && point & point >> 1 & 0x5555 != 0;
            if lattice.map[point] >= 0 || has_three {
                continue;
            }
            let low = &squares[(point & half_mask) * half..][..half];
            let high = &squares[(point >> half_bits) * half..][..half];
            let mut present = [false; 256];
            for (found, point) in found.iter_mut().zip(grid) {
                let point = usize::from(*point);
                *found = low[point & half_mask] + high[point >> half_bits];
                present[usize::from(*found)] = true;
            }
            let wanted = |(square, is_present): (u8, &bool)| is_present.then_some(square);
            let limit = (0..=255)
                .zip(&present)
                .filter_map(wanted)
                .take(distances)
                .last();
            let start = lattice.neighbours.len();
            let mut near: Vec<(u8, u16)> = Vec::new();
            for (found, point) in found.iter().zip(grid) {
                if Some(*found) <= limit {
                    near.push((*found, *point));
                }
            }
            near.sort_by_key(|(square, _)| *square);
            lattice
                .neighbours
                .extend(near.iter().map(|(_, point)| point));
            lattice.map[point] = !(lattice.lists.len() as i32);
            lattice.lists.push((start as u32, near.len() as u32));
        }
        lattice.neighbours.extend([0; 16]);
        lattice
    }

    /// The index of a point on the grid.
    #[inline(always)]
    pub(super) fn index(&self, point: i32) -> Option<u16> {
        let found = self.map[point as usize & (self.map.len() - 1)];
        u16::try_from(found).ok()
    }

    /// The point itself if it is on the grid, else the best neighbour: the least sum of `weight * difference^2` of
    /// `scale * value - x`, the first of equals. `None` if all sums overflow.
    ///
    /// Codes of a coordinate have few values, so their squares are computed once and looked up for 16 neighbours at a time.
    #[inline(always)]
    pub(super) fn nearest<S: Simd, const G: usize>(
        &self,
        simd: S,
        point: i32,
        (x, weights): (&[f32; G], &[f32; G]),
        scaled_values: S::Floats,
    ) -> Option<i32> {
        let found = self.map[point as usize & (self.map.len() - 1)];
        if found >= 0 {
            return Some(point);
        }
        let (start, count) = *self.lists.get(!found as usize)?;
        let mut squares = [scaled_values; G];
        for i in 0..G {
            let difference = simd.sub(scaled_values, simd.splat(x[i]));
            let weighted = simd.mul(simd.splat(weights[i]), difference);
            squares[i] = simd.mul(weighted, difference);
        }
        let list = &self.neighbours[start as usize..];
        let (mut best, mut nearest) = (f32::MAX, None);
        for at in (0..count as usize).step_by(16) {
            let points: &[u16; 16] = list[at..].first_chunk().expect("16 follow every list");
            let packed = simd.widen_u16(points);
            let mut sum = simd.lookup_8(squares[0], packed);
            for (i, square) in (0..).zip(&squares).skip(1) {
                let codes = simd.shr_ints(packed, self.bits * i);
                sum = simd.add(sum, simd.lookup_8(*square, codes));
            }
            // beyond the list, and what overflows or is NaN
            let beyond = simd.load_f32(
                WITHIN[16 - (count as usize - at).min(16)..]
                    .first_chunk()
                    .expect("there are 32"),
            );
            let is_valid = simd.lt(simd.add(sum, beyond), simd.splat(f32::MAX));
            let valid = simd.select(is_valid, sum, simd.splat(f32::MAX));
            let least = simd.least(valid);
            if least < best {
                best = least;
                let equal = simd.le(valid, simd.splat(best));
                let lane = simd.mask_bits(equal).trailing_zeros() as usize;
                nearest = Some(i32::from(points[lane & 15]));
            }
        }
        nearest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_sorted_by_distance_and_complete() {
        for (lattice, grid) in [(iq2_xxs(), 256), (iq3_s(), 512), (iq1(), 2048)] {
            let on_grid = lattice.map.iter().filter(|found| **found >= 0).count();
            assert_eq!(on_grid, grid);
            let (bits, coordinates) = (lattice.bits, 16 / lattice.bits - lattice.bits % 2);
            let distance = |a: usize, b: usize| {
                (0..coordinates).fold(0, |sum, i| {
                    let at = |x: usize| x >> (bits * i) & ((1 << bits) - 1);
                    sum + at(a).abs_diff(at(b)).pow(2)
                })
            };
            for (point, found) in lattice.map.iter().enumerate().step_by(7) {
                if *found >= 0 || *found == i32::MIN {
                    continue;
                }
                let (start, count) = lattice.lists[!*found as usize];
                let list = &lattice.neighbours[start as usize..][..count as usize];
                let squares: Vec<_> = list
                    .iter()
                    .map(|near| distance(point, (*near).into()))
                    .collect();
                assert!(squares.is_sorted());
                let mut all: Vec<_> = (0..lattice.map.len())
                    .filter(|other| lattice.map[*other] >= 0)
                    .map(|other| distance(point, other))
                    .filter(|square| Some(square) <= squares.last())
                    .collect();
                all.sort_unstable();
                assert_eq!(all, squares);
            }
        }
    }
}
