//! Encoder of Q1_0 (`quantize_row_q1_0_ref`); the layout is in `block/q1_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes};
use crate::simd::Simd;

pub(super) struct Q1_0;

impl BlockEncoder for Q1_0 {
    const LEN: usize = 128;
    const BYTES: usize = 18;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let zero = simd.splat(0.0);
        let mut sum = zero;
        for x in blocks.x {
            sum = simd.add(sum, simd.abs(*x));
        }
        out.put_f16(simd, 0, simd.div(sum, simd.splat(128.0)));
        for (byte, x) in blocks.x.as_chunks::<8>().0.iter().enumerate() {
            let mut bits = simd.splat_int(0);
            for (i, x) in x.iter().enumerate() {
                // the negative zero counts as positive
                let bit = simd.splat_int(1 << i);
                let bit = simd.select_ints(simd.le(zero, *x), bit, simd.splat_int(0));
                bits = simd.or_ints(bits, bit);
            }
            out.put(simd, 2 + byte, bits);
        }
    }
}
