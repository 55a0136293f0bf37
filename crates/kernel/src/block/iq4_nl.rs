//! IQ4_NL (`block_iq4_nl`): 32 codes of 4 bits, entries of a codebook, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, low nibbles first |
//!
//! `x = d * kvalues_iq4nl[q]`: Q4_0 with other values.

use super::q4_0::decode_table;
use crate::codebook::IQ4;
use crate::{OutputElement, Simd, kernel};

kernel!(iq4_nl);

#[inline(always)]
fn iq4_nl<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    decode_table::<S, O>(simd, &IQ4, blocks, out);
}
