//! Encoder of Q2_0 (`quantize_row_q2_0_ref`); the layout is in `block/q2_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, inverse_or_zero, join, round_half_away};
use crate::simd::Simd;

pub(super) struct Q2_0;

impl BlockEncoder for Q2_0 {
    const LEN: usize = 64;
    const BYTES: usize = 18;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let [_, d] = greatest(simd, blocks.x);
        out.put_f16(simd, 0, d);
        let inverse = inverse_or_zero(simd, d);
        for (byte, x) in blocks.x.as_chunks::<4>().0.iter().enumerate() {
            let mut packed = simd.splat_int(0);
            for (i, x) in x.iter().enumerate() {
                let code = round_half_away(simd, simd.mul(*x, inverse));
                let code = simd.add_ints(code, simd.splat_int(1));
                let code = simd.max_ints(simd.min_ints(code, simd.splat_int(3)), simd.splat_int(0));
                packed = join(simd, packed, code, 2 * i as u32);
            }
            out.put(simd, 2 + byte, packed);
        }
    }
}
