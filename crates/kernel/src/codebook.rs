//! Codebooks and small scale formats that several block types share.
//!
//! Source: `ggml-common.h` (`kvalues_iq4nl`, `kvalues_mxfp4`), `ggml-impl.h` (E8M0, UE4M3); OCP MX v1.0.

use super::{Lanes, each};

/// Values of the IQ4 codes.
pub(crate) static IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Twice the values of FP4 (E2M1); both zeros are +0, as in ggml's table of integers.
pub(crate) static FP4_DOUBLED: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0,
];

/// Half of an E8M0 scale, 2^(e - 128); ggml knows no NaN here.
#[inline(always)]
pub(crate) fn e8m0_half(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 {
        0x0020_0000 << e
    } else {
        (e - 1) << 23
    })
}

/// Halves of unsigned E4M3 scales, four to a word; their NaN (0x7f) is 0, the sign bit is ignored.
#[inline(always)]
pub(crate) fn ue4m3_halves<S: Lanes>(s: S, scales: [u32; 4]) -> [f32; 16] {
    let [a, b, c, d] = scales;
    let halves = each!(four in [a, b, c, d] => {
        // a byte in each sixteen bits
        let x = (u64::from(four) | u64::from(four) << 16) & 0x0000_ffff_0000_ffff;
        let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
        let number = ((x ^ 0x007f_007f_007f_007f) + 0x00ff_00ff_00ff_00ff) >> 8 & 0x0001_0001_0001_0001;
        // as F16, whose exponent is wider by a bit and biased by 8 more
        ((x & (number * 0x7f)) << 7).to_le_bytes()
    });
    s.array(s.mul(s.widen_f16(&bytemuck::must_cast(halves)), s.splat(128.0)))
}
