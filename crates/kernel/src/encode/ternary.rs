//! The common part of IQ1_S and IQ1_M: three levels, shifted by an eighth up or down, that split the sorted elements of a group.

use super::lanes::{squares, weigh};
use super::lattice::{self, Lattice};
use super::{EncodedColumns, Lanes};
use crate::simd::Simd;

/// The levels with their shift up, and down.
pub(super) const UP: [f32; 3] = [-0.875, 0.125, 1.125];
pub(super) const DOWN: [f32; 3] = [-1.125, -0.125, 0.875];

/// A group of `N` elements of each block.
pub(super) struct TernaryGroup<S: Simd, const N: usize> {
    pub(super) x: [S::Floats; N],
    pub(super) weights: [S::Floats; N],
    /// For each lane, the places of its elements in ascending order; equal ones stay in order.
    order: [[u8; N]; 16],
}

impl<S: Simd, const N: usize> TernaryGroup<S, N> {
    #[inline(always)]
    pub(super) fn new(simd: S, blocks: &Lanes<'_, S>, g: usize, square: S::Floats) -> Self {
        let x = blocks.x.as_chunks::<N>().0[g];
        let weights = match blocks.importance {
            Some(importance) => weigh(simd, &x, &importance.as_chunks::<N>().0[g], square),
            None => squares(simd, &x),
        };
        let mut columns = [[0.0; N]; 16];
        for (i, x) in x.iter().enumerate() {
            for (column, x) in columns.iter_mut().zip(simd.to_f32_array(*x)) {
                column[i] = x;
            }
        }
        let mut order = [[0; N]; 16];
        for (order, column) in order.iter_mut().zip(&columns) {
            *order = sorted(column);
        }
        Self { x, weights, order }
    }

    /// The elements' product with their weights, and their weights, in ascending order of the elements. `half` is 0 or 1 as an
    /// element is in the first or the second half.
    #[inline(always)]
    pub(super) fn in_order(&self, simd: S) -> [([S::Floats; 2], S::Floats); N] {
        let mut products = [[0.0; 16]; N];
        let mut weights = [[0.0; 16]; N];
        for i in 0..N {
            products[i] = simd.to_f32_array(simd.mul(self.weights[i], self.x[i]));
            weights[i] = simd.to_f32_array(self.weights[i]);
        }
        let zero = simd.splat(0.0);
        let mut sorted = [([zero; 2], zero); N];
        for (j, sorted) in sorted.iter_mut().enumerate() {
            let (mut product, mut weight, mut half) = ([0.0; 16], [0.0; 16], [0.0; 16]);
            for lane in 0..16 {
                let i = usize::from(self.order[lane][j]);
                product[lane] = products[i][lane];
                weight[lane] = weights[i][lane];
                half[lane] = if i < N / 2 { 0.0 } else { 1.0 };
            }
            let product = simd.load_f32(&product);
            *sorted = ([product, simd.load_f32(&weight)], simd.load_f32(&half));
        }
        sorted
    }

    /// The packed points of a lane whose sorted elements split before `first` and `second`; `flipped` negates the levels.
    #[inline(always)]
    pub(super) fn points<const P: usize>(
        &self,
        lane: usize,
        (first, second): (usize, usize),
        flipped: bool,
    ) -> [i32; P] {
        let mut points = [0; P];
        for (j, i) in self.order[lane].iter().enumerate() {
            let level = i32::from(j >= first) + i32::from(j >= second);
            let level = if flipped { 2 - level } else { level };
            points[usize::from(i / 8)] |= level << (2 * (i % 8));
        }
        points
    }

    /// Replaces point `p` of a lane, if it is off the grid, by its best neighbour; returns whether it was.
    #[inline(always)]
    pub(super) fn replace(
        &self,
        simd: S,
        lane: usize,
        (p, point): (usize, &mut i32),
        (scale, levels): (f32, &[f32; 3]),
        out: &mut EncodedColumns,
    ) -> bool {
        let lattice = grid();
        if lattice.index(*point).is_some() {
            return false;
        }
        let (mut x, mut weights) = ([0.0; 8], [0.0; 8]);
        for i in 0..8 {
            x[i] = simd.to_f32_array(self.x[8 * p + i])[lane];
            weights[i] = simd.to_f32_array(self.weights[8 * p + i])[lane];
        }
        let [a, b, c] = *levels;
        let values = [a, b, c, 0.0, a, b, c, 0.0, a, b, c, 0.0, a, b, c, 0.0];
        let scaled = simd.mul(simd.splat(scale), simd.load_f32(&values));
        match lattice.nearest::<S, 8>(simd, *point, (&x, &weights), scaled) {
            Some(found) => *point = found,
            None => out.refused |= 1 << lane,
        }
        true
    }
}

/// The grid of both types.
#[inline(always)]
pub(super) fn grid() -> &'static Lattice {
    lattice::iq1()
}

/// The places of elements in ascending order. Equal elements keep theirs, on which the sums depend.
#[inline(always)]
fn sorted<const N: usize>(x: &[f32; N]) -> [u8; N] {
    let mut rank = [0u8; N];
    for i in 0..N {
        for j in 0..N {
            let before = if j < i { x[j] <= x[i] } else { x[j] < x[i] };
            rank[i] += u8::from(before);
        }
    }
    let mut order = [0; N];
    for (i, rank) in (0..).zip(rank) {
        order[usize::from(rank) % N] = i;
    }
    order
}

/// The level of element `i` of a packed point.
#[inline(always)]
pub(super) fn level(point: i32, i: usize) -> usize {
    (point >> (2 * i) & 3).cast_unsigned() as usize % 3
}
