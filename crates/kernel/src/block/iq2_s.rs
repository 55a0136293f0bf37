//! IQ2_S (`block_iq2_s`): 256 elements in 16 groups of 16, each eight elements an entry of a grid with signs, 82 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[32]` | bits 0 to 7 of the grid indices |
//! | 34 | `qs[32..]` | signs, one bit per element |
//! | 66 | `qh[8]` | per 32 elements: bits 8 and 9 of four indices |
//! | 74 | `scales[8]` | per 32 elements: two scales of 4 bits, low nibble first |
//!
//! `x = d * (0.5 + scale) * 0.25 * grid[index] * sign`.

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd, tables};

grid_kernel!(82, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 82],
    out: &mut [O::Stored; 256],
) {
    let [low, high] = grid::iq2_scales(simd, d, field(block, 74));
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        // indices by scalar shifts, so that the lookups stay scalar loads (experiment 16)
        let [q0, q1, q2, q3] = unroll!(i in [0, 1, 2, 3] => usize::from(block[2 + 4 * g + i]));
        let signs = u32::from_le_bytes(*field(block, 34 + 4 * g));
        let qh = usize::from(block[66 + g]);
        let indices = [
            // the shift puts bits `2 * i` and `2 * i + 1` of `qh` on bits 8 and 9
            q0 | qh << 8 & 0x300,
            q1 | qh << 6 & 0x300,
            q2 | qh << 4 & 0x300,
            q3 | qh << 2 & 0x300,
        ];
        let entries = unroll!(i in [0, 1, 2, 3] => tables::IQ2_S[indices[i]]);
        grid::store_signed::<S, O, ASSUME_NORMAL>(simd, [low[g], high[g]], entries, signs, out);
    }
}
