//! Encoder of Q8_0 (`quantize_row_q8_0_ref`); the layout is in `block/q8_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, inverse_or_zero, round_half_away};
use crate::simd::Simd;

pub(super) struct Q8_0;

impl BlockEncoder for Q8_0 {
    const LEN: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let [_, magnitude] = greatest(simd, blocks.x);
        let d = simd.div(magnitude, simd.splat(127.0));
        out.put_f16(simd, 0, d);
        let inverse = inverse_or_zero(simd, d);
        for (i, x) in blocks.x.iter().enumerate() {
            let code = round_half_away(simd, simd.mul(*x, inverse));
            out.put(simd, 2 + i, code);
        }
    }
}
