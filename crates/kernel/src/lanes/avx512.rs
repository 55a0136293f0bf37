//! The operations in AVX-512: one register of sixteen F32.

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::Lanes;
use crate::half;
use crate::isa::{each, primitives};

/// AVX-512 F, BW, DQ, VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// As [`Avx512`], and BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

impl Avx512 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn here() -> Self {
        Self(())
    }
}

impl Avx512Bf16 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(crate) fn here() -> Self {
        Self(())
    }
}

/// What both have, and how each rounds plain values to BF16.
macro_rules! lanes {
    ($token:ident, $features:literal, $plain_bf16:ident) => {
        impl Lanes for $token {
            type Floats = __m512;
            type Bytes = __m256i;
            type Cells = __m512i;
            const SPREADS: bool = true;

            primitives! { $features;
                fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
                fn floats(x: &[f32; 16]) -> __m512 { must_cast(*x) }
                fn array(x: __m512) -> [f32; 16] { must_cast(x) }
                fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
                fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
                fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
                fn quarters(x: __m512) -> [__m512; 4] {
                    each!(i in [0u32, 4, 8, 12] => {
                        _mm512_permutexvar_ps(must_cast([[i; 4], [i + 1; 4], [i + 2; 4], [i + 3; 4]]), x)
                    })
                }
                fn widen_f16(x: &[[u8; 2]; 16]) -> __m512 {
                    widened(must_cast(*x))
                }

                fn widen_f16_apart(windows: [&[u8; 64]; 4], apart: u16) -> __m512 {
                    let of_first = each!(i in [0, 1, 2, 3] => i * apart);
                    let of_second = each!(i in [0, 1, 2, 3] => 32 + i * apart);
                    let eight: __m128i = must_cast([of_first, of_second]);
                    let places = _mm512_broadcast_i32x4(eight);
                    let low = _mm512_permutex2var_epi16(must_cast(*windows[0]), places, must_cast(*windows[1]));
                    let high = _mm512_permutex2var_epi16(must_cast(*windows[2]), places, must_cast(*windows[3]));
                    let [low, high] = each!(x in [low, high] => _mm512_castsi512_si256(x));
                    widened(_mm256_blend_epi32::<0b1111_0000>(low, high))
                }

                fn bytes(x: &[u8; 32]) -> __m256i { must_cast(*x) }
                fn pair(low: &[u8; 16], high: &[u8; 16]) -> __m256i {
                    _mm256_set_m128i(must_cast(*high), must_cast(*low))
                }
                fn quads(x: [u64; 4]) -> __m256i { must_cast(x) }
                fn nibbles(x: &[u8; 16]) -> __m256i {
                    let shifted = _mm256_srlv_epi32(_mm256_broadcastsi128_si256(must_cast(*x)), must_cast([[0u32; 4], [4; 4]]));
                    _mm256_and_si256(shifted, _mm256_set1_epi8(15))
                }
                fn nibble_pairs(x: __m256i) -> [__m256i; 2] {
                    each!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                        let x = _mm256_cvtepu8_epi16(x);
                        _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi16::<4>(x)), _mm256_set1_epi8(15))
                    })
                }
                fn turn_words(rows: [__m256i; 4]) -> [__m256i; 4] {
                    let [a, b, c, d] = rows;
                    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                    let (high_ab, high_cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                    [
                        _mm256_unpacklo_epi64(ab, cd),
                        _mm256_unpackhi_epi64(ab, cd),
                        _mm256_unpacklo_epi64(high_ab, high_cd),
                        _mm256_unpackhi_epi64(high_ab, high_cd),
                    ]
                }
                fn turn_bytes(x: __m256i) -> __m256i {
                    let lane: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
                    _mm256_shuffle_epi8(x, must_cast([lane; 2]))
                }
                fn nibbles_by_eight(x: &[u8; 16]) -> __m256i {
                    let x = _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(must_cast(*x)));
                    _mm256_and_si256(_mm256_srlv_epi64(x, must_cast([0u64, 4, 0, 4])), _mm256_set1_epi8(15))
                }
                fn pairs_of_bits(x: &[u8; 8]) -> __m256i {
                    let four_times = must_cast(each!(i in [0u32, 1, 2, 3, 4, 5, 6, 7] => 0x0101_0101 * i));
                    let x = _mm256_shuffle_epi8(_mm256_set1_epi64x(i64::from_le_bytes(*x)), four_times);
                    let x = _mm256_blend_epi16::<0b1010_1010>(x, _mm256_srli_epi16::<4>(x));
                    _mm256_and_si256(x, _mm256_set1_epi16(0x0c03))
                }
                fn byte_array(x: __m256i) -> [u8; 32] { must_cast(x) }
                fn splat_byte(x: u8) -> __m256i { _mm256_set1_epi8(x.cast_signed()) }
                fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
                fn or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
                fn add_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi8(a, b) }
                fn sub_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi8(a, b) }
                fn shr_u16(x: __m256i, by: u32) -> __m256i {
                    _mm256_srl_epi16(x, _mm_cvtsi32_si128(by.cast_signed()))
                }
                fn shl_u16(x: __m256i, by: u32) -> __m256i {
                    _mm256_sll_epi16(x, _mm_cvtsi32_si128(by.cast_signed()))
                }
                fn keep(bits: u32, x: __m256i) -> __m256i { _mm256_maskz_mov_epi8(bits, x) }
                fn negate(bits: u32, x: __m256i) -> __m256i {
                    _mm256_mask_sub_epi8(x, bits, _mm256_setzero_si256(), x)
                }
                fn above(x: __m256i, limit: u8) -> __m256i {
                    _mm256_movm_epi8(_mm256_cmpgt_epu8_mask(x, _mm256_set1_epi8(limit.cast_signed())))
                }
                fn unsigned(x: __m256i) -> [__m512; 2] {
                    let [low, high] = [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)];
                    [_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(high))]
                }
                fn signed(x: __m256i) -> [__m512; 2] {
                    let [low, high] = [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)];
                    [_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high))]
                }

                fn put_f32(x: [__m512; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
                fn put_f16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([f16(x[0]), f16(x[1])]); }
                fn put_plain_f16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([plain_f16(x[0]), plain_f16(x[1])]); }
                fn put_bf16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(bf16(x)); }
                fn put_plain_bf16(x: [__m512; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast($plain_bf16(x)); }
                fn cells_f16(tables: [__m512; 2]) -> __m512i { join([f16(tables[0]), f16(tables[1])]) }
                fn cells_plain_f16(tables: [__m512; 2]) -> __m512i { join([plain_f16(tables[0]), plain_f16(tables[1])]) }
                fn cells_bf16(tables: [__m512; 2]) -> __m512i { bf16(tables) }
                fn cells_plain_bf16(tables: [__m512; 2]) -> __m512i { $plain_bf16(tables) }
                fn pick_f32(tables: [__m512; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
                    let [low, high] = indices(codes);
                    *out = must_cast([_mm512_permutexvar_ps(low, tables[0]), _mm512_permutexvar_ps(high, tables[1])]);
                }
                fn pick_16(tables: __m512i, which: [usize; 2], codes: __m256i, out: &mut [[u8; 2]; 32]) {
                    let table = each!(i in [which[0], which[1]] => _mm256_set1_epi16(if i == 0 { 0 } else { 16 }));
                    let codes = _mm512_and_si512(_mm512_cvtepu8_epi16(codes), _mm512_set1_epi16(15));
                    *out = must_cast(_mm512_permutexvar_epi16(_mm512_or_si512(codes, join(table)), tables));
                }
                // picked, then multiplied: where a table is used once, the compiler would shuffle both of its factors
                fn pick_scaled_f32(table: __m512, factors: [f32; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
                    let [low, high] = indices(codes);
                    let picked = [_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table)];
                    let factors = each!(factor in [factors[0], factors[1]] => _mm512_set1_ps(factor));
                    *out = must_cast([_mm512_mul_ps(picked[0], factors[0]), _mm512_mul_ps(picked[1], factors[1])]);
                }
                fn pick_nibbles_f32(table: __m512, codes: &[u8; 16], out: &mut [[u8; 4]; 32]) {
                    let codes = _mm512_cvtepu8_epi32(must_cast(*codes));
                    let [low, high] = [codes, _mm512_srli_epi32::<4>(codes)];
                    *out = must_cast([_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table)]);
                }
                fn pick_nibbles_16(tables: __m512i, which: usize, codes: &[u8; 16], out: &mut [[u8; 2]; 32]) {
                    let table = if which == 0 { _mm512_castsi512_si256(tables) } else { _mm512_extracti64x4_epi64::<1>(tables) };
                    let codes = _mm256_cvtepu8_epi16(must_cast(*codes));
                    let [low, high] = [codes, _mm256_srli_epi16::<4>(codes)];
                    *out = must_cast([_mm256_permutexvar_epi16(low, table), _mm256_permutexvar_epi16(high, table)]);
                }
            }
        }
    };
}

lanes!(
    Avx512,
    "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl",
    plain_bf16
);
lanes!(
    Avx512Bf16,
    "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16",
    hardware_bf16
);

#[inline]
#[target_feature(enable = "avx512f")]
fn join([low, high]: [__m256i; 2]) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn nan(x: __m512) -> __mmask16 {
    _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x)
}

/// F32 from F16, every NaN the one of [`half::NAN`].
#[inline]
#[target_feature(enable = "avx512f")]
fn widened(x: __m256i) -> __m512 {
    let x = _mm512_cvtph_ps(x);
    _mm512_mask_mov_ps(x, nan(x), _mm512_set1_ps(half::NAN))
}

/// Thirty-two bytes as places in a table.
#[inline]
#[target_feature(enable = "avx512f")]
fn indices(codes: __m256i) -> [__m512i; 2] {
    let [low, high] = [
        _mm256_castsi256_si128(codes),
        _mm256_extracti128_si256::<1>(codes),
    ];
    [_mm512_cvtepu8_epi32(low), _mm512_cvtepu8_epi32(high)]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn plain_f16(x: __m512) -> __m256i {
    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn f16(x: __m512) -> __m256i {
    // the conversion keeps upper bits of a NaN: leave none
    let quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0xffc0_0000u32.cast_signed()));
    plain_f16(_mm512_mask_and_ps(x, nan(x), x, quiet))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn rounded(x: __m512) -> __m512i {
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd)
}

/// 1, 3, 5, …
const ODD: [u16; 32] = {
    let mut odd = [1; 32];
    let mut i = 1;
    while i < 32 {
        odd[i] = odd[i - 1] + 2;
        i += 1;
    }
    odd
};

/// The upper halves of thirty-two numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn upper_halves([low, high]: [__m512i; 2]) -> __m512i {
    _mm512_permutex2var_epi16(low, must_cast(ODD), high)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn plain_bf16(x: [__m512; 2]) -> __m512i {
    upper_halves([rounded(x[0]), rounded(x[1])])
}

/// Exact for values that are neither subnormal, which it would make zero, nor NaN, whose bits it would keep.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn hardware_bf16([low, high]: [__m512; 2]) -> __m512i {
    must_cast(_mm512_cvtne2ps_pbh(high, low))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bf16(x: [__m512; 2]) -> __m512i {
    upper_halves(
        each!(x in [x[0], x[1]] => _mm512_mask_mov_epi32(rounded(x), nan(x), _mm512_set1_epi32(0x7fc0_0000))),
    )
}
