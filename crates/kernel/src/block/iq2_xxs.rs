//! IQ2_XXS (`block_iq2_xxs`): 256 elements in 8 groups of 32, each eight elements an entry of a grid with signs, 66 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[32]` | u16, four per group: four grid indices (u8), then a u32 of four times seven signs and, on top, a scale of 4 bits |
//!
//! `x = d * (0.5 + scale) * 0.25 * grid[index] * sign`; every eighth sign makes the number of minuses even.

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd, tables};

grid_kernel!(66, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 66],
    out: &mut [O::Stored; 256],
) {
    let (qs, _) = field::<64>(block, 2).as_chunks::<8>();
    // all scales and signs of the block before the first lookup: this loop can be vectorised, the lookups cannot
    let (mut scales, mut signs) = ([0.0; 8], [0; 8]);
    for ((qs, scale), signs) in qs.iter().zip(&mut scales).zip(&mut signs) {
        let word = u32::from_le_bytes(*field(qs, 4));
        *scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        *signs = grid::complete_signs(word);
    }
    let (scales, signs) = grid::opaque((scales, signs));
    let (out, _) = out.as_chunks_mut::<32>();
    for (((qs, scale), signs), out) in qs.iter().zip(scales).zip(signs).zip(out) {
        let entries = unroll!(i in [0, 1, 2, 3] => tables::IQ2_XXS[usize::from(qs[i])]);
        grid::store_signed::<S, O, ASSUME_NORMAL>(simd, [scale; 2], entries, signs, out);
    }
}
