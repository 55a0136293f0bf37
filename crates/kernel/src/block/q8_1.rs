//! Q8_1 (`block_q8_1`): Q8_0 with a precomputed sum, 36 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `s` | F16, `d` times the sum of the codes; only dot products use it |
//! | 4 | `qs[32]` | signed codes |
//!
//! `x = q * d`. ggml quantises activations to this type and has no function that dequantises it; the formula follows from
//! the struct.

use super::q8_0::decode_i8;
use crate::{OutputElement, Simd, kernel};

kernel!(q8_1);

#[inline(always)]
fn q8_1<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    decode_i8::<S, O, 36, 4>(simd, blocks, out);
}
