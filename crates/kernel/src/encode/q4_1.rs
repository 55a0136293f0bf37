//! Encoder of Q4_1 (`quantize_row_q4_1_ref`, `quantize_row_q4_1_impl`); the layout is in `block/q4_1.rs`.

use super::BlockEncoder;
use super::affine::{self, AffineTrials};
use super::lanes::{EncodedColumns, Lanes, as_i8, extent, inverse_or_zero, join, negate, weigh};
use crate::simd::Simd;

pub(super) struct AffineQ4;

impl BlockEncoder for AffineQ4 {
    const LEN: usize = 32;
    const BYTES: usize = 20;
    const NEEDS_ROW: bool = true;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let mut codes = codes(simd, blocks, 15, out);
        if blocks.importance.is_none() {
            for code in &mut codes {
                let limited = simd.min_ints(as_i8(simd, *code), simd.splat_int(15));
                *code = simd.and_ints(limited, simd.splat_int(255));
            }
        }
        for i in 0..16 {
            out.put(simd, 4 + i, join(simd, codes[i], codes[i + 16], 4));
        }
    }
}

/// Writes the scale and the minimum, at offsets 0 and 2, and returns codes of Q4_1 and Q5_1, which are 0 to `max`. Without
/// importance they are not limited.
#[inline(always)]
pub(super) fn codes<S: Simd>(
    simd: S,
    blocks: &Lanes<'_, S>,
    max: i32,
    out: &mut EncodedColumns,
) -> [S::Ints; 32] {
    let x: &[S::Floats; 32] = blocks.x.first_chunk().expect("blocks have 32 elements");
    let mut codes = [simd.splat_int(0); 32];
    if let Some(importance) = blocks.importance {
        let importance = importance.first_chunk().expect("as many as elements");
        let weights = weigh(simd, x, importance, blocks.row_square);
        let fit = affine::search(simd, x, &weights, AffineTrials::weighted(max));
        out.put_f16(simd, 0, fit.scale);
        out.put_f16(simd, 2, negate(simd, fit.minimum));
        for (code, x) in codes.iter_mut().zip(x) {
            *code = fit.code(simd, *x);
        }
    } else {
        let [least, greatest] = extent(simd, x);
        let d = simd.div(simd.sub(greatest, least), simd.splat(max as f32));
        out.put_f16(simd, 0, d);
        out.put_f16(simd, 2, least);
        let inverse = inverse_or_zero(simd, d);
        for (code, x) in codes.iter_mut().zip(x) {
            let scaled = simd.mul(simd.sub(*x, least), inverse);
            *code = simd.truncate(simd.add(scaled, simd.splat(0.5)));
        }
    }
    codes
}
