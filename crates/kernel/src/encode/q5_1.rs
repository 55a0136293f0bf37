//! Encoder of Q5_1 (`quantize_row_q5_1_ref`, `quantize_row_q5_1_impl`); the layout is in `block/q5_1.rs`.

use super::lanes::{EncodedColumns, Lanes};
use super::{BlockEncoder, q4_1, q5_0};
use crate::simd::Simd;

pub(super) struct AffineQ5;

impl BlockEncoder for AffineQ5 {
    const LEN: usize = 32;
    const BYTES: usize = 24;
    const NEEDS_ROW: bool = true;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let codes = q4_1::codes(simd, blocks, 31, out);
        q5_0::put_fifth_bits(simd, &codes, 4, out);
    }
}
