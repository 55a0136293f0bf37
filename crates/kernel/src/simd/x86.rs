//! The operations on 32 bytes that AVX2 and AVX-512 share: both hold 32 bytes in one 256-bit register, and AVX-512 has no
//! shorter way for these.

/// Defines the shared byte operations with the features of the token that invokes it, in an `impl Simd`.
///
/// AVX-512 tokens expand the macro again rather than call `Avx2`'s methods, so that the compiler may use AVX-512's 32
/// registers and embedded broadcasts around them.
macro_rules! byte_operations {
    ($features:literal) => {
        $crate::simd::operations::operations! { $features;
            // a cast of an array by value is an unaligned load or store, so no intrinsic that takes a pointer is needed
            fn load_u8(x: &[u8; 32]) -> __m256i { must_cast(*x) }
            fn concat_u8x16(low: &[u8; 16], high: &[u8; 16]) -> __m256i {
                _mm256_set_m128i(must_cast(*high), must_cast(*low))
            }
            fn load_u64x4(x: [u64; 4]) -> __m256i { must_cast(x) }
            fn unpack_nibbles(x: &[u8; 16]) -> __m256i {
                // both halves hold all 16 bytes; only the high half is shifted
                let x = _mm256_broadcastsi128_si256(must_cast(*x));
                // a count per lane, 0 below and 4 above: one shift, where a uniform one would need a blend after it.
                // Bits that enter from the next byte are masked away
                let shifted = _mm256_srlv_epi32(x, must_cast([[0u32; 4], [4; 4]]));
                _mm256_and_si256(shifted, _mm256_set1_epi8(15))
            }
            fn unpack_nibbles_interleaved(x: __m256i) -> [__m256i; 2] {
                unroll!(x in [_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)] => {
                    // 0x00hl | 0x0hl0 has `l` in the lower byte and `h` in the upper one, below other bits
                    // widening keeps the bytes in order across the register; `vpunpck{l,h}bw` of low and high nibbles
                    // would interleave within 128-bit lanes and need a permutation afterwards
                    let x = _mm256_cvtepu8_epi16(x);
                    _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi16::<4>(x)), _mm256_set1_epi8(15))
                })
            }
            fn transpose_u32(rows: [__m256i; 4]) -> [__m256i; 4] {
                let [a, b, c, d] = rows;
                // per 128-bit lane, as `vpunpck` works: the operation is defined that way so that no shuffle crosses
                // lanes
                let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                let (high_ab, high_cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                [
                    _mm256_unpacklo_epi64(ab, cd),
                    _mm256_unpackhi_epi64(ab, cd),
                    _mm256_unpacklo_epi64(high_ab, high_cd),
                    _mm256_unpackhi_epi64(high_ab, high_cd),
                ]
            }
            fn transpose_u8(x: __m256i) -> __m256i {
                let transposed: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
                _mm256_shuffle_epi8(x, must_cast([transposed; 2]))
            }
            fn unpack_nibbles_per_8(x: &[u8; 16]) -> __m256i {
                // 64-bit words 0, 0, 1, 1; every second one is shifted
                let x = _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(must_cast(*x)));
                _mm256_and_si256(_mm256_srlv_epi64(x, must_cast([0u64, 4, 0, 4])), _mm256_set1_epi8(15))
            }
            fn unpack_bit_pairs(x: &[u8; 8]) -> __m256i {
                // each byte four times, of which the last two are shifted to have the upper nibble below
                let four_times = must_cast(unroll!(i in [0u32, 1, 2, 3, 4, 5, 6, 7] => 0x0101_0101 * i));
                let x = _mm256_shuffle_epi8(_mm256_set1_epi64x(i64::from_le_bytes(*x)), four_times);
                let x = _mm256_blend_epi16::<0b1010_1010>(x, _mm256_srli_epi16::<4>(x));
                // bits 0 and 1 of even bytes, bits 2 and 3 of odd ones
                _mm256_and_si256(x, _mm256_set1_epi16(0x0c03))
            }
            fn to_u8_array(x: __m256i) -> [u8; 32] { must_cast(x) }
            fn splat_u8(x: u8) -> __m256i { _mm256_set1_epi8(x.cast_signed()) }
            fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
            fn or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
            fn add_u8(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi8(a, b) }
            fn sub_u8(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi8(a, b) }
            // the count is an argument, since callers shift by a loop variable; where it is constant after unrolling,
            // LLVM emits the immediate form
            fn shr_u16(x: __m256i, by: u32) -> __m256i {
                _mm256_srl_epi16(x, _mm_cvtsi32_si128(by.cast_signed()))
            }
            fn shl_u16(x: __m256i, by: u32) -> __m256i {
                _mm256_sll_epi16(x, _mm_cvtsi32_si128(by.cast_signed()))
            }
        }
    };
}
pub(super) use byte_operations;
