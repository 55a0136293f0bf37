//! Encoder of TQ2_0 (`quantize_row_tq2_0_ref`); the layout is in `block/tq2_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, inverse_or_zero, join, round_half_away};
use crate::simd::Simd;

pub(super) struct Tq2_0;

impl BlockEncoder for Tq2_0 {
    const LEN: usize = 256;
    const BYTES: usize = 66;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let [_, d] = greatest(simd, blocks.x);
        out.put_f16(simd, 64, d);
        let inverse = inverse_or_zero(simd, d);
        for (half, x) in blocks.x.as_chunks::<128>().0.iter().enumerate() {
            for i in 0..32 {
                let mut packed = simd.splat_int(0);
                for n in 0..4 {
                    let code = trit(simd, x[i + 32 * n], inverse);
                    let code = simd.and_ints(code, simd.splat_int(3));
                    packed = join(simd, packed, code, 2 * n as u32);
                }
                out.put(simd, 32 * half + i, packed);
            }
        }
    }
}

/// An element as 0, 1 or 2. Where the scale's inverse overflows, the reference converts to 64 bits and keeps the low ones, 0.
#[inline(always)]
pub(super) fn trit<S: Simd>(simd: S, x: S::Floats, inverse: S::Floats) -> S::Ints {
    let scaled = simd.mul(x, inverse);
    let fits = simd.lt(simd.abs(scaled), simd.splat(2_147_483_648.0));
    let code = round_half_away(simd, scaled);
    let code = simd.select_ints(fits, code, simd.splat_int(0));
    simd.add_ints(code, simd.splat_int(1))
}
