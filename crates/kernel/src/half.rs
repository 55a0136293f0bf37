//! Conversions between F32 and the 16-bit floats in integer arithmetic, without branches, so that loops vectorise.
//!
//! Sources: IEEE 754 binary16; bfloat16 as PyTorch rounds it (`c10/util/BFloat16.h`: to nearest even, every NaN becomes
//! 0x7fc0).

/// Rounds to BF16, to nearest even; every NaN becomes 0x7fc0.
///
/// BF16 is the upper half of an F32. Adding 0x7fff, or 0x8000 if the lowest kept bit is odd, carries into the upper half
/// exactly where rounding goes up.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
pub(crate) fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let bits = if x.is_nan() { 0x7fc0 } else { rounded };
    bits as u16
}

/// Rounds to F16, to nearest even; a NaN keeps its sign and becomes the quiet NaN without payload.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
pub(crate) fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // normal: change the exponent bias from 127 to 15 and round away the low 13 bits, as for BF16
    let normal = magnitude
        .wrapping_sub(112 << 23)
        .wrapping_add(0xfff + ((magnitude >> 13) & 1))
        >> 13;
    // subnormal: in the sum with 0.5, F32's last bit is worth 2^-24 as F16's is, so the addition itself rounds
    let small = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    // 0x3880_0000 is 2^-14, the smallest normal F16
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
    // from 65520 on, values round to infinity
    // selects instead of branches; all candidates are computed
    let result = if magnitude >= 0x477f_f000 {
        large
    } else {
        finite
    };
    (sign | result) as u16
}

/// The NaN that x86 gives for 0 × ∞. Widening gives the same one, so that a result does not depend on which NaN an
/// operation happens to propagate.
pub(crate) const NAN: f32 = f32::from_bits(0xffc0_0000);

/// Widens a little-endian F16 to F32, exactly; every NaN becomes the negative quiet NaN without payload.
#[inline(always)]
pub fn from_f16(bits: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(bits));
    let sign = (half & 0x8000) << 16;
    let magnitude = half & 0x7fff;
    // multiplying by 2^112 corrects the exponent bias (127 - 15) and makes subnormals normal
    // a subnormal F16 is a subnormal F32 before the multiplication: as everywhere in Rust, the processor must not be
    // set to flush subnormals
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((112 + 127) << 23)).to_bits();
    let special = if magnitude > 0x7c00 {
        NAN.to_bits()
    } else {
        0x7f80_0000
    };
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// Widens a little-endian BF16 to F32, exactly.
#[inline(always)]
pub fn from_bf16(bits: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_of_every_f16_equals_the_half_crate() {
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
    fn rounding_equals_the_half_crate() {
        let mut state = 1u32;
        for i in 0..4_000_000u32 {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            // all exponents with random mantissas, and values halfway between two results
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
