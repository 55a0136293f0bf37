//! Codebooks and 8-bit scale formats that several block types share.
//!
//! Sources: `ggml-common.h` (`kvalues_iq4nl`, `kvalues_mxfp4`), `ggml-impl.h` (E8M0, UE4M3), OCP Microscaling Formats 1.0.

use super::Simd;
use crate::unroll::unroll;

/// The values of IQ4_NL's and IQ4_XS's codes (`kvalues_iq4nl`).
pub(crate) static IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Twice the values of FP4 (E2M1), as integers (`kvalues_mxfp4`): both zeros are +0, unlike in [`crate::E2M1_VALUES`].
pub(crate) static FP4_DOUBLED: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0,
];

/// Half of an E8M0 scale, `2^(e - 128)`: half, because the codes' values are doubled. Exponents 0 and 1 give subnormals. ggml
/// gives 255, which OCP defines as NaN, no special meaning.
#[inline(always)]
pub(crate) fn e8m0_half(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 {
        // 2^-128 and 2^-127 have no normal F32: bits 21 and 22 of the mantissa
        0x0020_0000 << e
    } else {
        (e - 1) << 23
    })
}

/// Halves of 16 unsigned E4M3 scales, four per word: half, because the codes' values are doubled. As in ggml, NaN (0x7f) gives
/// zero and the sign bit is ignored.
///
/// Scalar arithmetic on four bytes at once, then one conversion of 16 F16: half of NVFP4's gain in experiment 12.
#[inline(always)]
pub(crate) fn ue4m3_halves<S: Simd>(simd: S, scales: [u32; 4]) -> [f32; 16] {
    let [a, b, c, d] = scales;
    let halves = unroll!(four in [a, b, c, d] => {
        // spread the four bytes to 16 bits each
        let x = (u64::from(four) | u64::from(four) << 16) & 0x0000_ffff_0000_ffff;
        let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
        // 1 in each 16 bits, and 0 where the byte is exactly 0x7f: only then is nothing carried into bit 8. 0xff is no
        // NaN to ggml and gives 480
        let number = ((x ^ 0x007f_007f_007f_007f) + 0x00ff_00ff_00ff_00ff) >> 8 & 0x0001_0001_0001_0001;
        // moved by 7 bits it is an F16, whose exponent is one bit wider and biased by 8 more: 1/256 of the value, so the
        // half is 128 times as much
        ((x & (number * 0x7f)) << 7).to_le_bytes()
    });
    simd.to_f32_array(simd.mul(
        simd.widen_f16(&bytemuck::must_cast(halves)),
        simd.splat(128.0),
    ))
}
