//! Encoder of Q4_0 (`quantize_row_q4_0_ref`, `quantize_row_q4_0_impl`); the layout is in `block/q4_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, as_i8, greatest, inverse_or_zero, join, weigh};
use super::symmetric;
use crate::simd::Simd;

pub(super) struct SymmetricQ4;

impl BlockEncoder for SymmetricQ4 {
    const LEN: usize = 32;
    const BYTES: usize = 18;
    const NEEDS_ROW: bool = true;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let codes = codes(simd, blocks, 8, out);
        for i in 0..16 {
            out.put(simd, 2 + i, join(simd, codes[i], codes[i + 16], 4));
        }
    }
}

/// Writes the scale, at offset 0, and returns codes of Q4_0 and Q5_0, which are `-limit` to `limit - 1`, from 0 on.
#[inline(always)]
pub(super) fn codes<S: Simd>(
    simd: S,
    blocks: &Lanes<'_, S>,
    limit: i32,
    out: &mut EncodedColumns,
) -> [S::Ints; 32] {
    let x: &[S::Floats; 32] = blocks.x.first_chunk().expect("blocks have 32 elements");
    let mut codes = [simd.splat_int(0); 32];
    if let Some(importance) = blocks.importance {
        let importance = importance.first_chunk().expect("as many as elements");
        let weights = weigh(simd, x, importance, blocks.row_square);
        let fit = symmetric::search(simd, x, &weights, limit);
        out.put_f16(simd, 0, fit.scale);
        for (code, x) in codes.iter_mut().zip(x) {
            *code = fit.code(simd, *x);
        }
    } else {
        let [max, _] = greatest(simd, x);
        let d = simd.div(max, simd.splat(-limit as f32));
        out.put_f16(simd, 0, d);
        let inverse = inverse_or_zero(simd, d);
        let half_up = simd.splat(limit as f32 + 0.5);
        for (code, x) in codes.iter_mut().zip(x) {
            let truncated = simd.truncate(simd.add(simd.mul(*x, inverse), half_up));
            let limited = simd.min_ints(as_i8(simd, truncated), simd.splat_int(2 * limit - 1));
            *code = simd.and_ints(limited, simd.splat_int(255));
        }
    }
    codes
}
