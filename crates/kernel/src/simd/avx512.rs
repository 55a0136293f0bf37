//! The operations with AVX-512: 16 F32 are one register, 32 bytes are half of one (VL forms).
//!
//! Two tokens, because not every processor with AVX-512 has its BF16 extension. They differ in one operation, rounding to
//! BF16, so one macro defines both.

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::operations::{operations, outline};
use super::x86::byte_operations;
use super::{Simd, Stage};
use crate::half;
use crate::unroll::unroll;

/// The token of AVX-512 F, BW, DQ and VL: Skylake-SP and Zen 4 on.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// The token of [`Avx512`]'s features and AVX512_BF16: Cooper Lake, Sapphire Rapids and Zen 4 on.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

impl Avx512 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Avx512Bf16 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Implements [`Simd`] for a token; `$round_bf16_normal` rounds values that are neither subnormal nor NaN, `$outline` is the
/// method of that name.
macro_rules! avx512 {
    ($token:ident, $features:literal, $round_bf16_normal:ident, { $($outline:tt)* }) => {
        impl Simd for $token {
            type Floats = __m512;
            type Ints = __m512i;
            type Mask = __mmask16;
            type Bytes = __m256i;
            type Tables16 = __m512i;
            const HAS_EMBEDDED_BROADCAST: bool = true;

            byte_operations! { $features }
            $($outline)*

            operations! { $features;
                fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
                fn load_f32(x: &[f32; 16]) -> __m512 { must_cast(*x) }
                fn to_f32_array(x: __m512) -> [f32; 16] { must_cast(x) }
                fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
                fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
                fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
                fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
                fn sqrt(x: __m512) -> __m512 { _mm512_sqrt_ps(x) }
                fn abs(x: __m512) -> __m512 { _mm512_abs_ps(x) }
                fn lt(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
                fn le(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
                fn select(mask: __mmask16, a: __m512, b: __m512) -> __m512 { _mm512_mask_blend_ps(mask, b, a) }
                fn select_ints(mask: __mmask16, a: __m512i, b: __m512i) -> __m512i { _mm512_mask_blend_epi32(mask, b, a) }
                fn both(a: __mmask16, b: __mmask16) -> __mmask16 { a & b }
                fn mask_bits(mask: __mmask16) -> u16 { mask }
                fn splat_int(x: i32) -> __m512i { _mm512_set1_epi32(x) }
                fn load_ints(x: &[i32; 16]) -> __m512i { must_cast(*x) }
                fn to_int_array(x: __m512i) -> [i32; 16] { must_cast(x) }
                fn add_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
                fn sub_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
                fn min_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epi32(a, b) }
                fn max_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epi32(a, b) }
                fn and_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
                fn or_ints(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
                fn shl_ints(x: __m512i, by: u32) -> __m512i { _mm512_sll_epi32(x, _mm_cvtsi32_si128(by.cast_signed())) }
                fn shr_ints(x: __m512i, by: u32) -> __m512i { _mm512_sra_epi32(x, _mm_cvtsi32_si128(by.cast_signed())) }
                fn eq_ints(a: __m512i, b: __m512i) -> __mmask16 { _mm512_cmpeq_epi32_mask(a, b) }
                fn ints_to_f32(x: __m512i) -> __m512 { _mm512_cvtepi32_ps(x) }
                fn to_bits(x: __m512) -> __m512i { _mm512_castps_si512(x) }
                fn truncate(x: __m512) -> __m512i { _mm512_cvttps_epi32(x) }
                fn lookup_8(table: __m512, index: __m512i) -> __m512 { _mm512_permutexvar_ps(index, table) }
                fn least(x: __m512) -> f32 { _mm512_reduce_min_ps(x) }
                fn widen_u16(x: &[u16; 16]) -> __m512i { _mm512_cvtepu16_epi32(must_cast(*x)) }
                fn low_bytes(x: __m512i) -> [u8; 16] { must_cast(_mm512_cvtepi32_epi8(x)) }
                fn transpose_f32(rows: [&[f32; 16]; 16]) -> [__m512; 16] { transpose(rows) }
                fn repeat_each_4(x: __m512) -> [__m512; 4] {
                    unroll!(i in [0u32, 4, 8, 12] => {
                        _mm512_permutexvar_ps(must_cast([[i; 4], [i + 1; 4], [i + 2; 4], [i + 3; 4]]), x)
                    })
                }
                fn widen_f16(x: &[[u8; 2]; 16]) -> __m512 {
                    widen_16(must_cast(*x))
                }

                fn widen_f16_strided(windows: [&[u8; 64]; 4], stride: u16) -> __m512 {
                    // `vpermt2w` picks words of two registers: indices from 32 on belong to the second. The eight indices
                    // are repeated, so each permutation leaves its words in every 128-bit lane, and a blend joins the words
                    // of the first two windows with the words of the last two.
                    let of_first = unroll!(i in [0, 1, 2, 3] => i * stride);
                    let of_second = unroll!(i in [0, 1, 2, 3] => 32 + i * stride);
                    let eight: __m128i = must_cast([of_first, of_second]);
                    let indices = _mm512_broadcast_i32x4(eight);
                    let low = _mm512_permutex2var_epi16(must_cast(*windows[0]), indices, must_cast(*windows[1]));
                    let high = _mm512_permutex2var_epi16(must_cast(*windows[2]), indices, must_cast(*windows[3]));
                    let [low, high] = unroll!(x in [low, high] => _mm512_castsi512_si256(x));
                    widen_16(_mm256_blend_epi32::<0b1111_0000>(low, high))
                }

                fn select_or_zero(bits: u32, x: __m256i) -> __m256i { _mm256_maskz_mov_epi8(bits, x) }
                fn negate_where(bits: u32, x: __m256i) -> __m256i {
                    _mm256_mask_sub_epi8(x, bits, _mm256_setzero_si256(), x)
                }
                fn gt_u8(x: __m256i, limit: u8) -> __m256i {
                    _mm256_movm_epi8(_mm256_cmpgt_epu8_mask(x, _mm256_set1_epi8(limit.cast_signed())))
                }
                fn u8_to_f32(x: __m256i) -> [__m512; 2] {
                    let [low, high] = [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)];
                    [_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(high))]
                }
                fn i8_to_f32(x: __m256i) -> [__m512; 2] {
                    let [low, high] = [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)];
                    [_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high))]
                }

                fn store_f32(x: [__m512; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
                fn store_f16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_f16(x[0]), round_f16(x[1])]); }
                fn store_f16_normal(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([round_f16_normal(x[0]), round_f16_normal(x[1])]); }
                fn store_bf16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(round_bf16(x)); }
                fn store_bf16_normal(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast($round_bf16_normal(x)); }
                // two conversions and an insertion: only BF16 has an instruction that narrows two registers at once
                fn tables_f16(tables: [__m512; 2]) -> __m512i { concat_256([round_f16(tables[0]), round_f16(tables[1])]) }
                fn tables_f16_normal(tables: [__m512; 2]) -> __m512i { concat_256([round_f16_normal(tables[0]), round_f16_normal(tables[1])]) }
                fn tables_bf16(tables: [__m512; 2]) -> __m512i { round_bf16(tables) }
                fn tables_bf16_normal(tables: [__m512; 2]) -> __m512i { $round_bf16_normal(tables) }
                fn lookup_f32(tables: [__m512; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
                    let [low, high] = widen_indices(codes);
                    *out = must_cast([_mm512_permutexvar_ps(low, tables[0]), _mm512_permutexvar_ps(high, tables[1])]);
                }
                fn lookup_16(tables: __m512i, which: [usize; 2], codes: __m256i, out: &mut [[u8; 2]; 32]) {
                    // bit 4 of an index selects the table
                    let table = unroll!(i in [which[0], which[1]] => _mm256_set1_epi16(if i == 0 { 0 } else { 16 }));
                    // `vpermw` on 32 entries uses five bits of an index, so the codes' upper bits are cleared first,
                    // which `lookup_nibbles_16` avoids by looking up in 16 entries
                    let codes = _mm512_and_si512(_mm512_cvtepu8_epi16(codes), _mm512_set1_epi16(15));
                    *out = must_cast(_mm512_permutexvar_epi16(_mm512_or_si512(codes, concat_256(table)), tables));
                }
                // Lookup first, multiplication second. In the opposite order the compiler hoists nothing and permutes both
                // products: NVFP4 to F32 was 1.13 times slower (experiment 47).
                fn lookup_scaled_f32(table: __m512, factors: [f32; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
                    let [low, high] = widen_indices(codes);
                    let entries = [_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table)];
                    let factors = unroll!(factor in [factors[0], factors[1]] => _mm512_set1_ps(factor));
                    *out = must_cast([_mm512_mul_ps(entries[0], factors[0]), _mm512_mul_ps(entries[1], factors[1])]);
                }
                fn lookup_nibbles_f32(table: __m512, codes: &[u8; 16], out: &mut [[u8; 4]; 32]) {
                    // the low nibbles are the first 16 codes as they are; a shift brings the high ones down
                    let codes = _mm512_cvtepu8_epi32(must_cast(*codes));
                    let [low, high] = [codes, _mm512_srli_epi32::<4>(codes)];
                    *out = must_cast([_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table)]);
                }
                fn lookup_nibbles_16(tables: __m512i, which: usize, codes: &[u8; 16], out: &mut [[u8; 2]; 32]) {
                    // a lookup in 16 entries needs half of the register that holds both tables
                    let table = if which == 0 { _mm512_castsi512_si256(tables) } else { _mm512_extracti64x4_epi64::<1>(tables) };
                    let codes = _mm256_cvtepu8_epi16(must_cast(*codes));
                    let [low, high] = [codes, _mm256_srli_epi16::<4>(codes)];
                    *out = must_cast([_mm256_permutexvar_epi16(low, table), _mm256_permutexvar_epi16(high, table)]);
                }
            }
        }
    };
}

avx512!(
    Avx512,
    "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl",
    round_bf16_normal,
    {
        outline! { "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl", Avx512(()) }
    }
);
avx512!(
    Avx512Bf16,
    "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16",
    convert_bf16_normal,
    {
        // the extension rounds outputs only, which stages do not write: both tokens share the stages
        #[inline(always)]
        fn outline<T: Stage>(self, stage: T) {
            Avx512(()).outline(stage);
        }
    }
);

/// One register from two halves.
#[inline]
#[target_feature(enable = "avx512f")]
fn concat_256([low, high]: [__m256i; 2]) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// A bit for each lane that is NaN: only NaN compares unordered with itself.
#[inline]
#[target_feature(enable = "avx512f")]
fn nan_mask(x: __m512) -> __mmask16 {
    _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x)
}

/// F32 from 16 F16, every NaN as [`half::NAN`].
#[inline]
#[target_feature(enable = "avx512f")]
fn widen_16(x: __m256i) -> __m512 {
    let x = _mm512_cvtph_ps(x);
    _mm512_mask_mov_ps(x, nan_mask(x), _mm512_set1_ps(half::NAN))
}

/// 32 codes as 32-bit indices. `vpermps` ignores all but the low four bits, so no mask is needed.
#[inline]
#[target_feature(enable = "avx512f")]
fn widen_indices(codes: __m256i) -> [__m512i; 2] {
    let [low, high] = [
        _mm256_castsi256_si128(codes),
        _mm256_extracti128_si256::<1>(codes),
    ];
    [_mm512_cvtepu8_epi32(low), _mm512_cvtepu8_epi32(high)]
}

/// F16 from 16 values without NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn round_f16_normal(x: __m512) -> __m256i {
    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)
}

/// F16 from 16 values, NaN without payload.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn round_f16(x: __m512) -> __m256i {
    // `vcvtps2ph` copies the upper payload bits of a NaN: clear the payload, keep the sign and the quiet bit
    let quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0xffc0_0000u32.cast_signed()));
    round_f16_normal(_mm512_mask_and_ps(x, nan_mask(x), x, quiet))
}

/// The bits of each value, rounded to nearest even such that the upper 16 are the BF16: adds half a unit less one, and one
/// if the lowest kept bit is odd.
#[inline]
#[target_feature(enable = "avx512f")]
fn round_upper_half(x: __m512) -> __m512i {
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd)
}

/// The indices 1, 3, 5, …: little-endian, the odd 16-bit words are the upper halves of the 32-bit ones.
const ODD: [u16; 32] = {
    let mut odd = [1; 32];
    let mut i = 1;
    while i < 32 {
        odd[i] = odd[i - 1] + 2;
        i += 1;
    }
    odd
};

/// The upper halves of 32 words, by one permutation of two registers and in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn upper_halves([low, high]: [__m512i; 2]) -> __m512i {
    // in order at once; AVX2's `vpackusdw` packs per 128-bit lane and needs shifts before it and a permutation after it
    _mm512_permutex2var_epi16(low, must_cast(ODD), high)
}

/// BF16 from 32 values without NaN, in integer arithmetic.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round_bf16_normal(x: [__m512; 2]) -> __m512i {
    upper_halves([round_upper_half(x[0]), round_upper_half(x[1])])
}

/// BF16 from 32 values by one instruction. Correct for values that are neither subnormal, which it flushes to zero, nor
/// NaN, whose payload it keeps.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn convert_bf16_normal([low, high]: [__m512; 2]) -> __m512i {
    // the first operand becomes the upper half
    must_cast(_mm512_cvtne2ps_pbh(high, low))
}

/// BF16 from 32 values, every NaN as 0x7fc0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round_bf16(x: [__m512; 2]) -> __m512i {
    upper_halves(
        unroll!(x in [x[0], x[1]] => _mm512_mask_mov_epi32(round_upper_half(x), nan_mask(x), _mm512_set1_epi32(0x7fc0_0000))),
    )
}

/// Transposes 16 × 16 values: pairs of rows, then fours, are interleaved within 128 bits, then those move.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [&[f32; 16]; 16]) -> [__m512; 16] {
    let zero = _mm512_setzero_ps();
    let (mut pairs, mut fours, mut out) = ([zero; 16], [zero; 16], [zero; 16]);
    for i in 0..8 {
        let (a, b) = (must_cast(*rows[2 * i]), must_cast(*rows[2 * i + 1]));
        pairs[2 * i] = _mm512_unpacklo_ps(a, b);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(a, b);
    }
    for g in [0, 4, 8, 12] {
        for half in 0..2 {
            let [a, b] = [
                _mm512_castps_pd(pairs[g + half]),
                _mm512_castps_pd(pairs[g + half + 2]),
            ];
            fours[g + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            fours[g + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    // vector `g + c` of `fours` has column `4 * k + c` of rows `g` to `g + 3` in its 128 bits `k`
    for c in 0..4 {
        let [a, b, d, e] = [fours[c], fours[4 + c], fours[8 + c], fours[12 + c]];
        let even = [
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0x88>(d, e),
        ];
        let odd = [
            _mm512_shuffle_f32x4::<0xdd>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(d, e),
        ];
        out[c] = _mm512_shuffle_f32x4::<0x88>(even[0], even[1]);
        out[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]);
        out[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even[0], even[1]);
        out[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]);
    }
    out
}
