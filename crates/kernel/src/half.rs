//! Conversions between F32 and the 16-bit formats, without branches, so that they vectorise.
//!
//! Source: IEEE 754 binary16; bfloat16 as PyTorch rounds it (`c10/util/BFloat16.h`: nearest even,
//! every NaN becomes 0x7fc0).

/// BF16, rounded to nearest even.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
pub(crate) fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let bits = if x.is_nan() { 0x7fc0 } else { rounded };
    bits as u16
}

/// F16, rounded to nearest even; a NaN keeps its sign and becomes the quiet one.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
pub(crate) fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // normal: rebias the exponent from 127 to 15 and round the 13 bits that go
    let normal = magnitude
        .wrapping_sub(112 << 23)
        .wrapping_add(0xfff + ((magnitude >> 13) & 1))
        >> 13;
    // subnormal: adding 0.5 lets the F32 addition do the rounding, at 2⁻²⁴ per unit
    let small = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 0x3880_0000 {
        small
    } else {
        normal
    };
    let large = if magnitude > 0x7f80_0000 {
        0x7e00
    } else {
        0x7c00
    };
    // 65520 and more round to infinity
    let result = if magnitude >= 0x477f_f000 {
        large
    } else {
        finite
    };
    (sign | result) as u16
}

/// The NaN that x86 gives for 0 × ∞, so that no order of operations makes another.
pub(crate) const NAN: f32 = f32::from_bits(0xffc0_0000);

/// F32 from F16, exact; every NaN becomes the quiet one with a sign and no payload.
#[inline(always)]
pub fn from_f16(bits: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(bits));
    let sign = (half & 0x8000) << 16;
    let magnitude = half & 0x7fff;
    // the exponent moves up by 112; a multiplication by 2¹¹² also sets subnormals right
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((112 + 127) << 23)).to_bits();
    let special = if magnitude > 0x7c00 {
        NAN.to_bits()
    } else {
        0x7f80_0000
    };
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// F32 from BF16, exact.
#[inline(always)]
pub fn from_bf16(bits: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_read_as_the_half_crate_reads_it() {
        for bits in 0..=u16::MAX {
            let expected = ::half::f16::from_bits(bits).to_f32();
            let found = from_f16(bits.to_le_bytes());
            assert!(
                found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                "{bits:#06x}"
            );
        }
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        let mut state = 1u32;
        for i in 0..4_000_000u32 {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            // all exponents, random mantissas; and the spots halfway between two results
            let bits = if i % 2 == 0 {
                state
            } else {
                (state & 0xffff_e000) | 0x1000
            };
            let x = f32::from_bits(bits);
            if x.is_nan() {
                assert_eq!(bf16(x), 0x7fc0);
                assert_eq!(f16(x) & 0x7fff, 0x7e00);
                continue;
            }
            assert_eq!(
                f16(x),
                ::half::f16::from_f32_const(x).to_bits(),
                "{bits:#010x}"
            );
            assert_eq!(
                bf16(x),
                ::half::bf16::from_f32_const(x).to_bits(),
                "{bits:#010x}"
            );
        }
    }
}
