//! Codebooks and small scale formats that several block types share.
//!
//! Source: `ggml-common.h` (`kvalues_iq4nl`, `kvalues_mxfp4`), `ggml-impl.h` (E8M0, UE4M3); OCP MX v1.0.

use super::Element;

/// Values of the IQ4 codes.
static IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the magnitudes of FP4 (E2M1), 0 to 6, a nibble each, lowest code in the lowest nibble.
const FP4_DOUBLED: u32 = 0xc864_3210;

/// The 16 elements that a group with this scale can hold: multiplied and rounded once, not once per code.
#[inline(always)]
pub(crate) fn iq4_cells<O: Element>(scale: f32) -> [O::Cell; 16] {
    let mut cells = [O::cell(0.0); 16];
    for (value, cell) in IQ4.iter().zip(&mut cells) {
        *cell = O::cell(scale * f32::from(*value));
    }
    cells
}

/// Twice the value of an FP4 code; both zeros are +0, as in ggml's table of integers.
#[inline(always)]
pub(crate) fn fp4_doubled(code: u8) -> f32 {
    let code = u32::from(code);
    let magnitude = (FP4_DOUBLED >> (4 * (code & 7)) & 15).cast_signed();
    let value = if code & 8 == 0 { magnitude } else { -magnitude };
    value as f32
}

/// Half of an E8M0 scale, 2^(e - 128); ggml knows no NaN here.
#[inline(always)]
pub(crate) fn e8m0_half(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

/// Half of an unsigned E4M3 scale; its NaN (0x7f) is 0, the sign bit is ignored.
#[inline(always)]
pub(crate) fn ue4m3_half(x: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(x >> 3 & 15), u32::from(x & 7));
    let normal = f32::from_bits((exponent + 119) << 23 | mantissa << 20);
    let subnormal = mantissa.cast_signed() as f32 * (1.0 / 1024.0);
    let value = if exponent == 0 { subnormal } else { normal };
    if x == 0x7f { 0.0 } else { value }
}
