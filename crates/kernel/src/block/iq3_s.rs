//! IQ3_S (`block_iq3_s`): 256 elements in 8 groups of 32, each four elements an entry of a grid with signs, 110 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[64]` | bits 0 to 7 of the grid indices |
//! | 66 | `qh[8]` | per group: bit 8 of eight indices |
//! | 74 | `signs[32]` | signs, one bit per element |
//! | 106 | `scales[4]` | per 64 elements: two scales of 4 bits, low nibble first |
//!
//! `x = d * (1 + 2 * scale) * grid[index] * sign`.

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd, tables};

grid_kernel!(110, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 110],
    out: &mut [O::Stored; 256],
) {
    let nibbles = u32::from_le_bytes(*field(block, 106));
    let mut scales = [0.0; 8];
    for (g, scale) in scales.iter_mut().enumerate() {
        *scale = d * (1 + 2 * (nibbles >> (4 * g) & 15)).cast_signed() as f32;
    }
    let scales = grid::opaque(scales);
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (q, h) = (
            u64::from_le_bytes(*field(block, 2 + 8 * g)),
            u64::from(block[66 + g]),
        );
        // the even and the odd indices in 16 bits each: bit 8 of an index comes from `h`, spread to one bit per 16
        // even indices of a group are bits 0, 2, 4 and 6 of `h`: shifted by 14 each, they are bits 0, 16, 32 and 48
        let even = (h | h << 14 | h << 28 | h << 42) & 0x0001_0001_0001_0001;
        let odd = (h >> 1 | h << 13 | h << 27 | h << 41) & 0x0001_0001_0001_0001;
        let even = q & 0x00ff_00ff_00ff_00ff | even << 8;
        let odd = q >> 8 & 0x00ff_00ff_00ff_00ff | odd << 8;
        // entries have four elements, so an even and an odd one are joined to one of eight
        let entries = unroll!(at in [0, 16, 32, 48] => {
            grid::join_entries(tables::IQ3_S[grid::index_at(even, at) & 511], tables::IQ3_S[grid::index_at(odd, at) & 511])
        });
        let signs = u32::from_le_bytes(*field(block, 74 + 4 * g));
        grid::store_signed::<S, O, ASSUME_NORMAL>(simd, [scales[g]; 2], entries, signs, out);
    }
}
