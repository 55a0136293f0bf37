//! The operations in AVX2 and F16C: two registers of eight F32.

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::Lanes;
use crate::half;
use crate::isa::{each, primitives};

/// AVX2, BMI2, F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    #[inline]
    #[target_feature(enable = "avx2,bmi2,f16c")]
    pub(crate) fn here() -> Self {
        Self(())
    }
}

type Floats = [__m256; 2];
/// Lower and upper bytes of each table's cells, in both lanes.
type Cells = [[__m256i; 2]; 2];

impl Lanes for Avx2 {
    type Floats = Floats;
    type Bytes = __m256i;
    type Cells = Cells;

    primitives! { "avx2,bmi2,f16c";
        fn splat(x: f32) -> Floats { [_mm256_set1_ps(x); 2] }
        fn floats(x: &[f32; 16]) -> Floats { must_cast(*x) }
        fn array(x: Floats) -> [f32; 16] { must_cast(x) }
        fn add(a: Floats, b: Floats) -> Floats { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn sub(a: Floats, b: Floats) -> Floats { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
        fn mul(a: Floats, b: Floats) -> Floats { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn quarters(x: Floats) -> [Floats; 4] {
            let eights = [(x[0], 0), (x[0], 2), (x[0], 4), (x[0], 6), (x[1], 0), (x[1], 2), (x[1], 4), (x[1], 6)];
            must_cast(each!(e in [0, 1, 2, 3, 4, 5, 6, 7] => {
                let (x, i) = eights[e];
                _mm256_permutevar8x32_ps(x, must_cast([i, i, i, i, i + 1, i + 1, i + 1, i + 1]))
            }))
        }
        fn widen_f16(x: &[[u8; 2]; 16]) -> Floats {
            let [low, high]: [__m128i; 2] = must_cast(*x);
            [one_nan(_mm256_cvtph_ps(low)), one_nan(_mm256_cvtph_ps(high))]
        }

        fn bytes(x: &[u8; 32]) -> __m256i { must_cast(*x) }
        fn pair(low: &[u8; 16], high: &[u8; 16]) -> __m256i { _mm256_set_m128i(must_cast(*high), must_cast(*low)) }
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
        fn shr_u16(x: __m256i, by: u32) -> __m256i { _mm256_srl_epi16(x, _mm_cvtsi32_si128(by.cast_signed())) }
        fn shl_u16(x: __m256i, by: u32) -> __m256i { _mm256_sll_epi16(x, _mm_cvtsi32_si128(by.cast_signed())) }
        fn keep(bits: u32, x: __m256i) -> __m256i { _mm256_and_si256(x, spread(bits)) }
        fn negate(bits: u32, x: __m256i) -> __m256i {
            let negative = spread(bits);
            _mm256_sub_epi8(_mm256_xor_si256(x, negative), negative)
        }
        fn above(x: __m256i, limit: u8) -> __m256i {
            // equal to the greater of itself and the next number
            let next = _mm256_set1_epi8(limit.wrapping_add(1).cast_signed());
            _mm256_cmpeq_epi8(_mm256_max_epu8(x, next), x)
        }
        fn unsigned(x: __m256i) -> [Floats; 2] {
            each!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                let [low, high] = [_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x))];
                [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
            })
        }
        fn signed(x: __m256i) -> [Floats; 2] {
            each!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                let [low, high] = [_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x))];
                [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
            })
        }

        fn put_f32(x: [Floats; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
        fn put_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([f16(x[0]), f16(x[1])]); }
        fn put_plain_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([plain_f16(x[0]), plain_f16(x[1])]); }
        fn put_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([bf16(x[0]), bf16(x[1])]); }
        fn put_plain_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast([plain_bf16(x[0]), plain_bf16(x[1])]); }
        fn cells_f16(tables: [Floats; 2]) -> Cells { [cells(f16(tables[0])), cells(f16(tables[1]))] }
        fn cells_plain_f16(tables: [Floats; 2]) -> Cells { [cells(plain_f16(tables[0])), cells(plain_f16(tables[1]))] }
        fn cells_bf16(tables: [Floats; 2]) -> Cells { [cells(bf16(tables[0])), cells(bf16(tables[1]))] }
        fn cells_plain_bf16(tables: [Floats; 2]) -> Cells { [cells(plain_bf16(tables[0])), cells(plain_bf16(tables[1]))] }
        fn pick_f32(tables: [Floats; 2], codes: __m256i, out: &mut [[u8; 4]; 32]) {
            let [first, second] = [_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes)];
            *out = must_cast(each!(([low, high], codes) in [(tables[0], first), (tables[1], second)] => {
                each!(eight in [codes, _mm_srli_si128::<8>(codes)] => {
                    let codes = _mm256_cvtepu8_epi32(eight);
                    let (low, high) = (_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes));
                    // bit 3 chooses, as the sign bit
                    _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
                })
            }));
        }
        fn pick_16(tables: Cells, which: [usize; 2], codes: __m256i, out: &mut [[u8; 2]; 32]) {
            let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
            let [first, second] = [tables[which[0]], tables[which[1]]];
            let [low, high] = each!((first, second) in [(first[0], second[0]), (first[1], second[1])] => {
                _mm256_shuffle_epi8(_mm256_blend_epi32::<0xf0>(first, second), codes)
            });
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

/// A byte of ones for each bit.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(bits: u32) -> __m256i {
    // each byte gets the byte that has its bit, then the bit
    let source = must_cast([[0u8; 8], [1; 8], [2; 8], [3; 8]]);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), source);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn one_nan(x: __m256) -> __m256 {
    _mm256_blendv_ps(
        x,
        _mm256_set1_ps(half::NAN),
        _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x),
    )
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn plain_f16([low, high]: Floats) -> __m256i {
    _mm256_set_m128i(
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high),
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low),
    )
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn f16(x: Floats) -> __m256i {
    // the conversion keeps upper bits of a NaN: leave none
    plain_f16(each!(x in [x[0], x[1]] => {
        let plain = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0xffc0_0000u32.cast_signed())));
        _mm256_blendv_ps(x, plain, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x))
    }))
}

/// The upper halves of sixteen numbers, each half as its own 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn pack([low, high]: [__m256i; 2]) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high))
}

#[inline]
#[target_feature(enable = "avx2")]
fn rounded(x: __m256) -> __m256i {
    let bits = _mm256_castps_si256(x);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd)
}

#[inline]
#[target_feature(enable = "avx2")]
fn plain_bf16(x: Floats) -> __m256i {
    pack(each!(x in [x[0], x[1]] => _mm256_srli_epi32::<16>(rounded(x))))
}

#[inline]
#[target_feature(enable = "avx2")]
fn bf16(x: Floats) -> __m256i {
    pack(each!(x in [x[0], x[1]] => {
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded(x)), _mm256_set1_epi32(0x7fc0), nan)
    }))
}

/// Lower and upper bytes apart, in both lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn cells(x: __m256i) -> [__m256i; 2] {
    let bytes = _mm256_packus_epi16(
        _mm256_and_si256(x, _mm256_set1_epi16(0xff)),
        _mm256_srli_epi16::<8>(x),
    );
    // lanes hold low, high, low, high eights
    [
        _mm256_permute4x64_epi64::<0b10_00_10_00>(bytes),
        _mm256_permute4x64_epi64::<0b11_01_11_01>(bytes),
    ]
}
