//! Encoder of MXFP4 (`quantize_row_mxfp4_ref`); the layout is in `block/mxfp4.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, join};
use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::simd::Simd;

pub(super) struct Mxfp4;

impl BlockEncoder for Mxfp4 {
    const LEN: usize = 32;
    const BYTES: usize = 17;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let [_, magnitude] = greatest(simd, blocks.x);
        let mut halves = [0.0; 16];
        for (lane, magnitude) in simd.to_f32_array(magnitude).into_iter().enumerate() {
            let exponent = exponent(magnitude);
            out.bytes[0][lane] = exponent;
            out.refused |= u16::from(exponent == 255) << lane;
            halves[lane] = e8m0_half(exponent);
        }
        let values = scaled_values(simd, simd.load_f32(&halves));
        for i in 0..16 {
            let low = nearest_value(simd, &values, blocks.x[i]);
            let high = nearest_value(simd, &values, blocks.x[i + 16]);
            out.put(simd, 1 + i, join(simd, low, high, 4));
        }
    }
}

/// The byte of the scale, for the greatest magnitude: `floor(log2f(x)) - 2`, biased. It wraps for the least numbers.
#[inline(always)]
fn exponent(x: f32) -> u8 {
    if x <= 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    // log2f rounds up to an integer just below a power of two: there, and for subnormal numbers, it is computed
    let log = if bits & 0x007f_ff00 == 0x007f_ff00 || bits < 0x0080_0000 {
        (f64::from(x).log2() as f32).floor() as i32
    } else {
        (bits >> 23).cast_signed() - 127
    };
    (log - 2 + 127) as u8
}

/// The 16 values of codes, times the scale.
#[inline(always)]
pub(super) fn scaled_values<S: Simd>(simd: S, scale: S::Floats) -> [S::Floats; 16] {
    let mut values = [scale; 16];
    for (value, code) in values.iter_mut().zip(&FP4_DOUBLED) {
        *value = simd.mul(simd.splat(*code), scale);
    }
    values
}

/// The code of the nearest value, the first of equals.
#[inline(always)]
pub(super) fn nearest_value<S: Simd>(simd: S, values: &[S::Floats; 16], x: S::Floats) -> S::Ints {
    let mut code = simd.splat_int(0);
    let mut best = simd.abs(simd.sub(values[0], x));
    for (i, value) in (0..).zip(values).skip(1) {
        let error = simd.abs(simd.sub(*value, x));
        let better = simd.lt(error, best);
        code = simd.select_ints(better, simd.splat_int(i), code);
        best = simd.select(better, error, best);
    }
    code
}
