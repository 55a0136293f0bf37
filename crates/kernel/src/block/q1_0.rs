//! Q1_0 (`block_q1_0`): 128 codes of 1 bit, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, lowest bits first |
//!
//! `x = d` for a set bit, else `-d`.

use super::q2_0::low_bit_kernel;

/// The signs, repeated: the lookup uses four bits, of which the code is the lowest.
static VALUES: [f32; 16] = [
    -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0,
];

// a set bit becomes code 1: -d and d are computed once per block and looked up
low_bit_kernel!(128, simd, word => {
    simd.select_or_zero(u32::from_le_bytes(*word), simd.splat_u8(1))
});
