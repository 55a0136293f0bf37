//! The operations with AVX2 and F16C: 16 F32 are two registers of eight, 32 bytes are one register.

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::Simd;
use super::operations::{operations, outline};
use super::x86::byte_operations;
use crate::half;
use crate::unroll::unroll;

/// The token of AVX2, BMI2 and F16C: Haswell (2013) and Zen on. No operation uses BMI2; the compiler does, for the bit
/// fields of scales.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

type Floats = [__m256; 2];
type Ints = [__m256i; 2];
/// For each of the two tables, the 16 low bytes and the 16 high bytes of its entries. Both are repeated in the two 128-bit
/// lanes, since `vpshufb` looks up within a lane only.
type Tables16 = [[__m256i; 2]; 2];

impl Simd for Avx2 {
    type Floats = Floats;
    type Ints = Ints;
    type Mask = Floats;
    type Bytes = __m256i;
    type Tables16 = Tables16;

    byte_operations! { "avx2,bmi2,f16c" }
    outline! { "avx2,bmi2,f16c", Avx2(()) }

    operations! { "avx2,bmi2,f16c";
        fn splat(x: f32) -> Floats { [_mm256_set1_ps(x); 2] }
        fn load_f32(x: &[f32; 16]) -> Floats { must_cast(*x) }
        fn to_f32_array(x: Floats) -> [f32; 16] { must_cast(x) }
        fn add(a: Floats, b: Floats) -> Floats { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn sub(a: Floats, b: Floats) -> Floats { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
        fn mul(a: Floats, b: Floats) -> Floats { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn div(a: Floats, b: Floats) -> Floats { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
        fn sqrt(x: Floats) -> Floats { [_mm256_sqrt_ps(x[0]), _mm256_sqrt_ps(x[1])] }
        fn abs(x: Floats) -> Floats { [_mm256_andnot_ps(_mm256_set1_ps(-0.0), x[0]), _mm256_andnot_ps(_mm256_set1_ps(-0.0), x[1])] }
        fn lt(a: Floats, b: Floats) -> Floats { [_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]), _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])] }
        fn le(a: Floats, b: Floats) -> Floats { [_mm256_cmp_ps::<_CMP_LE_OQ>(a[0], b[0]), _mm256_cmp_ps::<_CMP_LE_OQ>(a[1], b[1])] }
        fn select(mask: Floats, a: Floats, b: Floats) -> Floats { [_mm256_blendv_ps(b[0], a[0], mask[0]), _mm256_blendv_ps(b[1], a[1], mask[1])] }
        fn select_ints(mask: Floats, a: Ints, b: Ints) -> Ints { [_mm256_blendv_epi8(b[0], a[0], _mm256_castps_si256(mask[0])), _mm256_blendv_epi8(b[1], a[1], _mm256_castps_si256(mask[1]))] }
        fn both(a: Floats, b: Floats) -> Floats { [_mm256_and_ps(a[0], b[0]), _mm256_and_ps(a[1], b[1])] }
        fn mask_bits(mask: Floats) -> u16 { (_mm256_movemask_ps(mask[0]) | _mm256_movemask_ps(mask[1]) << 8).cast_unsigned() as u16 }
        fn splat_int(x: i32) -> Ints { [_mm256_set1_epi32(x); 2] }
        fn load_ints(x: &[i32; 16]) -> Ints { must_cast(*x) }
        fn to_int_array(x: Ints) -> [i32; 16] { must_cast(x) }
        fn add_ints(a: Ints, b: Ints) -> Ints { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        fn sub_ints(a: Ints, b: Ints) -> Ints { [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])] }
        fn min_ints(a: Ints, b: Ints) -> Ints { [_mm256_min_epi32(a[0], b[0]), _mm256_min_epi32(a[1], b[1])] }
        fn max_ints(a: Ints, b: Ints) -> Ints { [_mm256_max_epi32(a[0], b[0]), _mm256_max_epi32(a[1], b[1])] }
        fn and_ints(a: Ints, b: Ints) -> Ints { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
        fn or_ints(a: Ints, b: Ints) -> Ints { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn shl_ints(x: Ints, by: u32) -> Ints { let by = _mm_cvtsi32_si128(by.cast_signed()); [_mm256_sll_epi32(x[0], by), _mm256_sll_epi32(x[1], by)] }
        fn shr_ints(x: Ints, by: u32) -> Ints { let by = _mm_cvtsi32_si128(by.cast_signed()); [_mm256_sra_epi32(x[0], by), _mm256_sra_epi32(x[1], by)] }
        fn eq_ints(a: Ints, b: Ints) -> Floats { [_mm256_castsi256_ps(_mm256_cmpeq_epi32(a[0], b[0])), _mm256_castsi256_ps(_mm256_cmpeq_epi32(a[1], b[1]))] }
        fn ints_to_f32(x: Ints) -> Floats { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
        fn to_bits(x: Floats) -> Ints { [_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1])] }
        fn truncate(x: Floats) -> Ints { [_mm256_cvttps_epi32(x[0]), _mm256_cvttps_epi32(x[1])] }
        fn lookup_8(table: Floats, index: Ints) -> Floats { [_mm256_permutevar8x32_ps(table[0], index[0]), _mm256_permutevar8x32_ps(table[0], index[1])] }
        fn least(x: Floats) -> f32 {
            let eight = _mm256_min_ps(x[0], x[1]);
            let four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_min_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_min_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
        fn widen_u16(x: &[u16; 16]) -> Ints {
            let [low, high]: [__m128i; 2] = must_cast(*x);
            [_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high)]
        }
        fn low_bytes(x: Ints) -> [u8; 16] {
            let words = pack_words([_mm256_and_si256(x[0], _mm256_set1_epi32(255)), _mm256_and_si256(x[1], _mm256_set1_epi32(255))]);
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            must_cast(bytes)
         }
        fn repeat_each_4(x: Floats) -> [Floats; 4] {
            // a vector of eight lanes holds two of the four repeated lanes: (source half, first lane)
            let eights = [(x[0], 0), (x[0], 2), (x[0], 4), (x[0], 6), (x[1], 0), (x[1], 2), (x[1], 4), (x[1], 6)];
            must_cast(unroll!(e in [0, 1, 2, 3, 4, 5, 6, 7] => {
                let (x, i) = eights[e];
                _mm256_permutevar8x32_ps(x, must_cast([i, i, i, i, i + 1, i + 1, i + 1, i + 1]))
            }))
        }
        fn widen_f16(x: &[[u8; 2]; 16]) -> Floats {
            let [low, high]: [__m128i; 2] = must_cast(*x);
            [canonical_nan(_mm256_cvtph_ps(low)), canonical_nan(_mm256_cvtph_ps(high))]
        }
        fn select_or_zero(bits: u32, x: __m256i) -> __m256i { _mm256_and_si256(x, bits_to_byte_mask(bits)) }
        fn negate_where(bits: u32, x: __m256i) -> __m256i {
            let negative = bits_to_byte_mask(bits);
            _mm256_sub_epi8(_mm256_xor_si256(x, negative), negative)
        }
        fn gt_u8(x: __m256i, limit: u8) -> __m256i {
            // AVX2 compares bytes as signed numbers only; x > limit if and only if max(x, limit + 1) == x
            let next = _mm256_set1_epi8(limit.wrapping_add(1).cast_signed());
            _mm256_cmpeq_epi8(_mm256_max_epu8(x, next), x)
        }
        fn u8_to_f32(x: __m256i) -> [Floats; 2] {
            unroll!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                let [low, high] = [_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x))];
                [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
            })
        }
        fn i8_to_f32(x: __m256i) -> [Floats; 2] {
            unroll!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                let [low, high] = [_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x))];
                [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
            })
        }

        fn store_f32(x: [Floats; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
        fn store_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_f16(x[0]), round_f16(x[1])]); }
        fn store_f16_normal(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_f16_normal(x[0]), round_f16_normal(x[1])]); }
        fn store_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_bf16(x[0]), round_bf16(x[1])]); }
        fn store_bf16_normal(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_bf16_normal(x[0]), round_bf16_normal(x[1])]); }
        fn tables_f16(tables: [Floats; 2]) -> Tables16 { [split_bytes(round_f16(tables[0])), split_bytes(round_f16(tables[1]))] }
        fn tables_f16_normal(tables: [Floats; 2]) -> Tables16 { [split_bytes(round_f16_normal(tables[0])), split_bytes(round_f16_normal(tables[1]))] }
        fn tables_bf16(tables: [Floats; 2]) -> Tables16 { [split_bytes(round_bf16(tables[0])), split_bytes(round_bf16(tables[1]))] }
        fn tables_bf16_normal(tables: [Floats; 2]) -> Tables16 { [split_bytes(round_bf16_normal(tables[0])), split_bytes(round_bf16_normal(tables[1]))] }
        fn lookup_f32(tables: [Floats; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
            // each half of 16 codes uses its own table, eight codes at a time
            let [first, second] = [_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes)];
            *out = must_cast(unroll!(([low, high], codes) in [(tables[0], first), (tables[1], second)] => {
                unroll!(eight in [codes, _mm_srli_si128::<8>(codes)] => {
                    let codes = _mm256_cvtepu8_epi32(eight);
                    let (low, high) = (_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes));
                    // `vpermps` uses bits 0 to 2 of a code; bit 3, moved to the sign, selects the half of the table
                    _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
                })
            }));
        }
        fn lookup_16(tables: Tables16, which: [usize; 2], codes: __m256i, out: &mut [[u8; 2]; 32]) {
            // `vpshufb` gives zero where bit 7 of an index is set, so the upper bits must go
            let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
            // low lane: the first 16 codes and their table; high lane: the others and theirs
            let [first, second] = [tables[which[0]], tables[which[1]]];
            let [low, high] = unroll!((first, second) in [(first[0], second[0]), (first[1], second[1])] => {
                _mm256_shuffle_epi8(_mm256_blend_epi32::<0xf0>(first, second), codes)
            });
            // low and high bytes are interleaved per lane, so the four quarters are stored out of order
            let (first, second) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
            *out = must_cast([
                _mm256_castsi256_si128(first),
                _mm256_castsi256_si128(second),
                _mm256_extracti128_si256::<1>(first),
                _mm256_extracti128_si256::<1>(second),
            ]);
        }
    }
}

/// Byte `i` is all ones if bit `i` is set, else zero.
#[inline]
#[target_feature(enable = "avx2")]
fn bits_to_byte_mask(bits: u32) -> __m256i {
    // byte i becomes byte i / 8 of `bits`, is masked to bit i % 8, and is compared with it
    let source = must_cast([[0u8; 8], [1; 8], [2; 8], [3; 8]]);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), source);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
}

/// Replaces every NaN by [`half::NAN`]: a NaN is the only value that compares unordered with itself.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn canonical_nan(x: __m256) -> __m256 {
    _mm256_blendv_ps(
        x,
        _mm256_set1_ps(half::NAN),
        _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x),
    )
}

/// F16 from 16 values without NaN.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn round_f16_normal([low, high]: Floats) -> __m256i {
    _mm256_set_m128i(
        // the mode is in the instruction, so MXCSR's does not matter, and subnormal F16 are produced whatever its FTZ
        // says
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high),
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low),
    )
}

/// F16 from 16 values, NaN without payload.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn round_f16(x: Floats) -> __m256i {
    // `vcvtps2ph` copies the upper payload bits of a NaN: clear the payload, keep the sign and the quiet bit
    round_f16_normal(unroll!(x in [x[0], x[1]] => {
        let cleared = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0xffc0_0000u32.cast_signed())));
        _mm256_blendv_ps(x, cleared, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x))
    }))
}

/// Packs 16 words whose upper halves are zero. `vpackusdw` works per 128-bit lane, so the order is repaired afterwards.
#[inline]
#[target_feature(enable = "avx2")]
fn pack_words([low, high]: [__m256i; 2]) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high))
}

/// The bits of each value, rounded to nearest even such that the upper 16 are the BF16: adds half a unit less one, and one
/// if the lowest kept bit is odd.
#[inline]
#[target_feature(enable = "avx2")]
fn round_upper_half(x: __m256) -> __m256i {
    let bits = _mm256_castps_si256(x);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd)
}

/// BF16 from 16 values without NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn round_bf16_normal(x: Floats) -> __m256i {
    pack_words(unroll!(x in [x[0], x[1]] => _mm256_srli_epi32::<16>(round_upper_half(x))))
}

/// BF16 from 16 values, every NaN as 0x7fc0: rounding its bits could make an infinity of it.
#[inline]
#[target_feature(enable = "avx2")]
fn round_bf16(x: Floats) -> __m256i {
    pack_words(unroll!(x in [x[0], x[1]] => {
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        _mm256_blendv_epi8(_mm256_srli_epi32::<16>(round_upper_half(x)), _mm256_set1_epi32(0x7fc0), nan)
    }))
}

/// Splits 16 table entries into their low and their high bytes, each repeated in both 128-bit lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn split_bytes(x: __m256i) -> [__m256i; 2] {
    let bytes = _mm256_packus_epi16(
        _mm256_and_si256(x, _mm256_set1_epi16(0xff)),
        _mm256_srli_epi16::<8>(x),
    );
    // the four quarters hold low, high, low and high bytes of eight entries each
    [
        _mm256_permute4x64_epi64::<0b10_00_10_00>(bytes),
        _mm256_permute4x64_epi64::<0b11_01_11_01>(bytes),
    ]
}
