//! IQ1_S (`block_iq1_s`): 256 elements in 8 groups of 32, each eight elements an entry of a grid, 50 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[32]` | bits 0 to 7 of the grid indices |
//! | 34 | `qh[8]` | u16 per group: bits 8 to 10 of four indices, a scale of 3 bits, the sign of the shift |
//!
//! `x = d * (2 * scale + 1) * (grid[index] ± 1/8)`, minus if the sign bit is set.
//!
//! The computation is in eighths, so that a shifted entry is an integer: see [`grid::IQ1_EIGHTHS`].

use crate::field::field;
use crate::grid::{self, grid_kernel};
use crate::unroll::unroll;
use crate::{OutputElement, Simd};

grid_kernel!(50, groups);

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    d: f32,
    block: &[u8; 50],
    out: &mut [O::Stored; 256],
) {
    let (high, _) = field::<16>(block, 34).as_chunks();
    let mut scales = [0.0; 8];
    for (scale, high) in scales.iter_mut().zip(high) {
        // grid entries are in eighths; multiplying by 1/8 is exact
        let code = u32::from(u16::from_le_bytes(*high) >> 12 & 7);
        *scale = d * (2 * code + 1).cast_signed() as f32 * 0.125;
    }
    let scales = grid::opaque(scales);
    for (g, (high, out)) in high.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
        let high = usize::from(u16::from_le_bytes(*high));
        // bits 8 to 10 of the four indices are moved from `high` by scalar shifts, so that the lookups stay scalar loads
        let [q0, q1, q2, q3] = unroll!(i in [0, 1, 2, 3] => usize::from(block[2 + 4 * g + i]));
        let indices = [
            q0 | high << 8 & 0x700,
            q1 | high << 5 & 0x700,
            q2 | high << 2 & 0x700,
            q3 | high >> 1 & 0x700,
        ];
        // one shift for 32 elements: 8 * entry - 1 becomes 8 * entry + 1 unless the sign bit is set
        let up = simd.splat_u8(if high & 0x8000 == 0 { 2 } else { 0 });
        let codes = simd.add_u8(
            simd.load_u64x4(unroll!(i in [0, 1, 2, 3] => grid::IQ1_EIGHTHS[indices[i]])),
            up,
        );
        grid::store_scaled::<S, O, ASSUME_NORMAL>(simd, [scales[g]; 2], codes, out);
    }
}
