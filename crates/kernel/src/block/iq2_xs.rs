//! IQ2_XS (`block_iq2_xs`): 256 elements in 16 groups of 16, each eight elements an entry of a grid with signs, 74 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[32]` | u16: grid index in bits 0 to 8, seven signs in bits 9 to 15 |
//! | 66 | `scales[8]` | per 32 elements: two scales of 4 bits, low nibble first |
//!
//! `x = d * (0.5 + scale) * 0.25 * grid[index] * sign`; the eighth sign makes the number of minuses even.

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd, tables};

grid_kernel!(74, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 74],
    out: &mut [O::Stored; 256],
) {
    let [low, high] = grid::iq2_scales(simd, d, field(block, 66));
    let (qs, _) = field::<64>(block, 2).as_chunks::<8>();
    // all signs of the block before the first lookup: this loop can be vectorised, the lookups cannot
    let mut signs = [0; 8];
    for (qs, signs) in qs.iter().zip(&mut signs) {
        // the upper seven bits of each u16, joined to one word of four times seven
        let q = u64::from_le_bytes(*qs);
        // as IQ2_XXS stores them, so that both types complete the signs with the same four steps
        let word = q >> 9 & 0x7f | q >> 18 & 0x3f80 | q >> 27 & 0x1f_c000 | q >> 36 & 0x0fe0_0000;
        *signs = grid::complete_signs(grid::low_u32(word));
    }
    let signs = grid::opaque(signs);
    for (g, (qs, out)) in qs.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
        let q = u64::from_le_bytes(*qs);
        let entries = unroll!(at in [0, 16, 32, 48] => tables::IQ2_XS[grid::index_at(q, at) & 511]);
        grid::store_signed::<S, O, ASSUME_NORMAL>(simd, [low[g], high[g]], entries, signs[g], out);
    }
}
