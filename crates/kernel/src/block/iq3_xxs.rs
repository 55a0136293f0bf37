//! IQ3_XXS (`block_iq3_xxs`): 256 elements in 8 groups of 32, each four elements an entry of a grid with signs, 98 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[64]` | grid indices |
//! | 66 | `qs[64..]` | u32 per group: four times seven signs and, on top, a scale of 4 bits |
//!
//! `x = d * (0.5 + scale) * 0.5 * grid[index] * sign`; every eighth sign makes the number of minuses even.

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd, tables};

grid_kernel!(98, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 98],
    out: &mut [O::Stored; 256],
) {
    // all scales and signs of the block before the first lookup: this loop can be vectorised, the lookups cannot
    let (mut scales, mut signs) = ([0.0; 8], [0; 8]);
    let (words, _) = field::<32>(block, 66).as_chunks();
    for ((word, scale), signs) in words.iter().zip(&mut scales).zip(&mut signs) {
        let word = u32::from_le_bytes(*word);
        *scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        *signs = grid::complete_signs(word);
    }
    let (scales, signs) = grid::opaque((scales, signs));
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let q = u64::from_le_bytes(*field(block, 2 + 8 * g));
        // entries have four elements, so two are joined to one of eight
        let entries = unroll!(at in [0, 16, 32, 48] => {
            grid::join_entries(tables::IQ3_XXS[grid::index_at(q, at) & 255], tables::IQ3_XXS[grid::index_at(q, at + 8) & 255])
        });
        grid::store_signed::<S, O, ASSUME_NORMAL>(simd, [scales[g]; 2], entries, signs[g], out);
    }
}
