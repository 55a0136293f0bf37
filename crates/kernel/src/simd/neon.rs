//! The operations with NEON: 16 F32 are four registers of four, 32 bytes are two registers.
//!
//! `map` and `from_fn` are used here, unlike in the x86 files: NEON is part of every aarch64 target with hardware
//! floating point, so a closure that is not inlined is still compiled with it.

use std::arch::aarch64::*;
use std::array::from_fn;

use bytemuck::must_cast;

use super::Simd;
use super::operations::{operations, outline};
use crate::half;

/// The token of NEON (Advanced SIMD), little-endian.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

type Floats = [float32x4_t; 4];
type Ints = [int32x4_t; 4];
type Mask = [uint32x4_t; 4];
type Bytes = [uint8x16_t; 2];
/// For each of the two tables, the 16 low bytes and the 16 high bytes of its entries: `tbl` looks up bytes.
type Tables16 = [[uint8x16_t; 2]; 2];

impl Simd for Neon {
    type Floats = Floats;
    type Ints = Ints;
    type Mask = Mask;
    type Bytes = Bytes;
    type Tables16 = Tables16;

    outline! { "neon", Neon(()) }

    operations! { "neon";
        fn splat(x: f32) -> Floats { [vdupq_n_f32(x); 4] }
        fn load_f32(x: &[f32; 16]) -> Floats { must_cast(*x) }
        fn to_f32_array(x: Floats) -> [f32; 16] { must_cast(x) }
        fn add(a: Floats, b: Floats) -> Floats { from_fn(|i| vaddq_f32(a[i], b[i])) }
        fn sub(a: Floats, b: Floats) -> Floats { from_fn(|i| vsubq_f32(a[i], b[i])) }
        fn mul(a: Floats, b: Floats) -> Floats { from_fn(|i| vmulq_f32(a[i], b[i])) }
        fn div(a: Floats, b: Floats) -> Floats { from_fn(|i| vdivq_f32(a[i], b[i])) }
        fn sqrt(x: Floats) -> Floats { from_fn(|i| vsqrtq_f32(x[i])) }
        fn abs(x: Floats) -> Floats { from_fn(|i| vabsq_f32(x[i])) }
        fn lt(a: Floats, b: Floats) -> Mask { from_fn(|i| vcltq_f32(a[i], b[i])) }
        fn le(a: Floats, b: Floats) -> Mask { from_fn(|i| vcleq_f32(a[i], b[i])) }
        fn select(mask: Mask, a: Floats, b: Floats) -> Floats { from_fn(|i| vbslq_f32(mask[i], a[i], b[i])) }
        fn select_ints(mask: Mask, a: Ints, b: Ints) -> Ints { from_fn(|i| vbslq_s32(mask[i], a[i], b[i])) }
        fn both(a: Mask, b: Mask) -> Mask { from_fn(|i| vandq_u32(a[i], b[i])) }
        fn mask_bits(mask: Mask) -> u16 {
            // each lane keeps the bit of its place among four
            let bit: uint32x4_t = must_cast([1u32, 2, 4, 8]);
            let [a, b, c, d] = mask.map(|lanes| vaddvq_u32(vandq_u32(lanes, bit)) as u16);
            a | b << 4 | c << 8 | d << 12
         }
        fn splat_int(x: i32) -> Ints { [vdupq_n_s32(x); 4] }
        fn load_ints(x: &[i32; 16]) -> Ints { must_cast(*x) }
        fn to_int_array(x: Ints) -> [i32; 16] { must_cast(x) }
        fn add_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vaddq_s32(a[i], b[i])) }
        fn sub_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vsubq_s32(a[i], b[i])) }
        fn min_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vminq_s32(a[i], b[i])) }
        fn max_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vmaxq_s32(a[i], b[i])) }
        fn and_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vandq_s32(a[i], b[i])) }
        fn or_ints(a: Ints, b: Ints) -> Ints { from_fn(|i| vorrq_s32(a[i], b[i])) }
        fn shl_ints(x: Ints, by: u32) -> Ints { from_fn(|i| vshlq_s32(x[i], vdupq_n_s32(by.cast_signed()))) }
        fn shr_ints(x: Ints, by: u32) -> Ints { from_fn(|i| vshlq_s32(x[i], vdupq_n_s32(-by.cast_signed()))) }
        fn eq_ints(a: Ints, b: Ints) -> Mask { from_fn(|i| vceqq_s32(a[i], b[i])) }
        fn ints_to_f32(x: Ints) -> Floats { from_fn(|i| vcvtq_f32_s32(x[i])) }
        fn to_bits(x: Floats) -> Ints { from_fn(|i| vreinterpretq_s32_f32(x[i])) }
        fn truncate(x: Floats) -> Ints {
            // the conversion saturates, where x86 gives the least integer
            from_fn(|i| {
                let fits = vcltq_f32(vabsq_f32(x[i]), vdupq_n_f32(2_147_483_648.0));
                vbslq_s32(fits, vcvtq_s32_f32(x[i]), vdupq_n_s32(i32::MIN))
            })
         }
        fn lookup_8(table: Floats, index: Ints) -> Floats {
            let table: [f32; 16] = must_cast(table);
            let index: [i32; 16] = must_cast(index);
            must_cast(index.map(|i| table[(i & 7).cast_unsigned() as usize]))
         }
        fn least(x: Floats) -> f32 {
            vminvq_f32(vminq_f32(vminq_f32(x[0], x[1]), vminq_f32(x[2], x[3])))
        }
        fn widen_u16(x: &[u16; 16]) -> Ints { must_cast(x.map(i32::from)) }
        fn low_bytes(x: Ints) -> [u8; 16] {
            let lanes: [i32; 16] = must_cast(x);
            lanes.map(|x| x.cast_unsigned() as u8)
         }
        fn repeat_each_4(x: Floats) -> [Floats; 4] {
            x.map(|x| {
                [vdupq_laneq_f32::<0>(x), vdupq_laneq_f32::<1>(x), vdupq_laneq_f32::<2>(x), vdupq_laneq_f32::<3>(x)]
            })
        }
        fn widen_f16(x: &[[u8; 2]; 16]) -> Floats {
            let fours: [uint16x4_t; 4] = must_cast(*x);
            fours.map(|x| canonical_nan(vcvt_f32_f16(vreinterpret_f16_u16(x)), half::NAN))
        }

        fn load_u8(x: &[u8; 32]) -> Bytes { must_cast(*x) }
        fn concat_u8x16(low: &[u8; 16], high: &[u8; 16]) -> Bytes { [must_cast(*low), must_cast(*high)] }
        fn load_u64x4(x: [u64; 4]) -> Bytes { must_cast(x) }
        fn unpack_nibbles(x: &[u8; 16]) -> Bytes { split_nibbles(must_cast(*x)) }
        fn unpack_nibbles_interleaved(x: Bytes) -> [Bytes; 2] {
            x.map(|x| {
                let [low, high] = split_nibbles(x);
                [vzip1q_u8(low, high), vzip2q_u8(low, high)]
            })
        }
        fn transpose_u32(rows: [Bytes; 4]) -> [Bytes; 4] {
            let [first, second] = [0, 1].map(|i| transpose_4x4_u32(rows.map(|row| row[i])));
            from_fn(|word| [first[word], second[word]])
        }
        fn transpose_u8(x: Bytes) -> Bytes {
            let order: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
            x.map(|x| vqtbl1q_u8(x, must_cast(order)))
        }
        fn unpack_nibbles_per_8(x: &[u8; 16]) -> Bytes {
            let [low, high] = split_nibbles(must_cast(*x)).map(|x| vreinterpretq_u64_u8(x));
            [vreinterpretq_u8_u64(vzip1q_u64(low, high)), vreinterpretq_u8_u64(vzip2q_u64(low, high))]
        }
        fn unpack_bit_pairs(x: &[u8; 8]) -> Bytes {
            // each byte four times, of which the last two are shifted right by four
            let four_times: Bytes = must_cast([0u32, 1, 2, 3, 4, 5, 6, 7].map(|i| 0x0101_0101 * i));
            let x = vreinterpretq_u8_u64(vdupq_n_u64(u64::from_le_bytes(*x)));
            // a negative count shifts right
            let right = must_cast([[0i8, 0, -4, -4]; 4]);
            four_times.map(|i| vandq_u8(vshlq_u8(vqtbl1q_u8(x, i), right), must_cast([[3u8, 12]; 8])))
        }
        fn to_u8_array(x: Bytes) -> [u8; 32] { must_cast(x) }
        fn splat_u8(x: u8) -> Bytes { [vdupq_n_u8(x); 2] }
        fn and(a: Bytes, b: Bytes) -> Bytes { [vandq_u8(a[0], b[0]), vandq_u8(a[1], b[1])] }
        fn or(a: Bytes, b: Bytes) -> Bytes { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
        fn add_u8(a: Bytes, b: Bytes) -> Bytes { [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])] }
        fn sub_u8(a: Bytes, b: Bytes) -> Bytes { [vsubq_u8(a[0], b[0]), vsubq_u8(a[1], b[1])] }
        fn shr_u16(x: Bytes, by: u32) -> Bytes { shift_u16(x, -by.cast_signed()) }
        fn shl_u16(x: Bytes, by: u32) -> Bytes { shift_u16(x, by.cast_signed()) }
        fn select_or_zero(bits: u32, x: Bytes) -> Bytes {
            let kept = bits_to_byte_mask(bits);
            [vandq_u8(x[0], kept[0]), vandq_u8(x[1], kept[1])]
        }
        fn negate_where(bits: u32, x: Bytes) -> Bytes {
            let negative = bits_to_byte_mask(bits);
            from_fn(|i| vsubq_u8(veorq_u8(x[i], negative[i]), negative[i]))
        }
        fn gt_u8(x: Bytes, limit: u8) -> Bytes { x.map(|x| vcgtq_u8(x, vdupq_n_u8(limit))) }
        fn u8_to_f32(x: Bytes) -> [Floats; 2] {
            x.map(|x| {
                // bytes to 16 bits, to 32 bits, to F32; the `high` forms take the upper half without a move
                let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
                let [low, high] = [low, high].map(|x| [vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x)]);
                [low[0], low[1], high[0], high[1]].map(|x| vcvtq_f32_u32(x))
            })
        }
        fn i8_to_f32(x: Bytes) -> [Floats; 2] {
            x.map(|x| {
                let x = vreinterpretq_s8_u8(x);
                let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
                let [low, high] = [low, high].map(|x| [vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)]);
                [low[0], low[1], high[0], high[1]].map(|x| vcvtq_f32_s32(x))
            })
        }

        // stores are plain copies: the registers hold the bytes in order
        fn store_f32(x: [Floats; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
        fn store_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| round_f16(x))); }
        fn store_f16_normal(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| round_f16_normal(x))); }
        fn store_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| round_bf16(x))); }
        fn store_bf16_normal(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| round_bf16_normal(x))); }
        fn tables_f16(tables: [Floats; 2]) -> Tables16 { tables.map(|x| split_bytes(round_f16(x))) }
        fn tables_f16_normal(tables: [Floats; 2]) -> Tables16 { tables.map(|x| split_bytes(round_f16_normal(x))) }
        fn tables_bf16(tables: [Floats; 2]) -> Tables16 { tables.map(|x| split_bytes(round_bf16(x))) }
        fn tables_bf16_normal(tables: [Floats; 2]) -> Tables16 { tables.map(|x| split_bytes(round_bf16_normal(x))) }
        fn lookup_f32(tables: [Floats; 2], codes: Bytes, out: &mut [[u8; 4]; 32]) {
            let entries: [[uint16x8_t; 4]; 2] = from_fn(|i| {
                // `tbl` gives zero for an index above 15, so the upper bits of a code are cleared first
                let codes = vandq_u8(codes[i], vdupq_n_u8(15));
                let [a, b, c, d] = byte_planes(tables[i]).map(|plane| vqtbl1q_u8(plane, codes));
                let [low, high] = [[vzip1q_u8(a, b), vzip2q_u8(a, b)], [vzip1q_u8(c, d), vzip2q_u8(c, d)]]
                    .map(|halves| halves.map(|x| vreinterpretq_u16_u8(x)));
                [
                    vzip1q_u16(low[0], high[0]),
                    vzip2q_u16(low[0], high[0]),
                    vzip1q_u16(low[1], high[1]),
                    vzip2q_u16(low[1], high[1]),
                ]
            });
            *out = must_cast(entries);
        }
        fn lookup_16(tables: Tables16, which: [usize; 2], codes: Bytes, out: &mut [[u8; 2]; 32]) {
            let entries: [[uint8x16_t; 2]; 2] = from_fn(|i| {
                let codes = vandq_u8(codes[i], vdupq_n_u8(15));
                let [low, high] = tables[which[i]].map(|bytes| vqtbl1q_u8(bytes, codes));
                [vzip1q_u8(low, high), vzip2q_u8(low, high)]
            });
            *out = must_cast(entries);
        }
    }
}

/// The low nibbles of 16 bytes, and the high ones.
#[inline]
#[target_feature(enable = "neon")]
fn split_nibbles(x: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)]
}

/// Transposes a 4 × 4 matrix of 32-bit words.
#[inline]
#[target_feature(enable = "neon")]
fn transpose_4x4_u32(rows: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
    let [a, b, c, d] = rows.map(|row| vreinterpretq_u32_u8(row));
    let [even, odd] = [
        [vtrn1q_u32(a, b), vtrn1q_u32(c, d)],
        [vtrn2q_u32(a, b), vtrn2q_u32(c, d)],
    ]
    .map(|pairs| pairs.map(|x| vreinterpretq_u64_u32(x)));
    [
        vtrn1q_u64(even[0], even[1]),
        vtrn1q_u64(odd[0], odd[1]),
        vtrn2q_u64(even[0], even[1]),
        vtrn2q_u64(odd[0], odd[1]),
    ]
    .map(|words| vreinterpretq_u8_u64(words))
}

/// Shifts each 16-bit number left by `by`, or right if `by` is negative: NEON's variable shift does both.
#[inline]
#[target_feature(enable = "neon")]
fn shift_u16(x: Bytes, by: i32) -> Bytes {
    let by = vdupq_n_s16(by as i16);
    x.map(|x| vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(x), by)))
}

/// Byte `i` is all ones if bit `i` is set, else zero.
#[inline]
#[target_feature(enable = "neon")]
fn bits_to_byte_mask(bits: u32) -> Bytes {
    // byte i becomes byte i / 8 of `bits` and is tested for bit i % 8
    let bytes = vreinterpretq_u8_u32(vdupq_n_u32(bits));
    let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let source: Bytes = must_cast([[0u8; 8], [1; 8], [2; 8], [3; 8]]);
    source.map(|source| vtstq_u8(vqtbl1q_u8(bytes, source), bit))
}

/// Replaces every NaN by `nan`: a NaN is the only value that does not equal itself.
#[inline]
#[target_feature(enable = "neon")]
fn canonical_nan(x: float32x4_t, nan: f32) -> float32x4_t {
    vbslq_f32(vceqq_f32(x, x), x, vdupq_n_f32(nan))
}

/// F16 from 16 values without NaN.
#[inline]
#[target_feature(enable = "neon")]
fn round_f16_normal([a, b, c, d]: Floats) -> [uint16x8_t; 2] {
    [[a, b], [c, d]]
        .map(|[low, high]| vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)))
}

/// F16 from 16 values, NaN without payload.
#[inline]
#[target_feature(enable = "neon")]
fn round_f16(x: Floats) -> [uint16x8_t; 2] {
    // `fcvtn` makes a NaN quiet and copies upper payload bits: clear them
    round_f16_normal(x).map(|x| {
        let nan = vcgtq_u16(vandq_u16(x, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7c00));
        // 0x01ff is the payload below the quiet bit
        vbicq_u16(x, vandq_u16(nan, vdupq_n_u16(0x01ff)))
    })
}

/// BF16 from 16 values without NaN.
#[inline]
#[target_feature(enable = "neon")]
fn round_bf16_normal([a, b, c, d]: Floats) -> [uint16x8_t; 2] {
    [[a, b], [c, d]].map(|[low, high]| {
        let [low, high] = [low, high].map(|x| vreinterpretq_u32_f32(x));
        // half a unit less one, and one if the lowest kept bit is odd; `addhn` adds it and keeps the upper half
        let half_unit = |bits: uint32x4_t| {
            vaddq_u32(
                vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1)),
                vdupq_n_u32(0x7fff),
            )
        };
        vaddhn_high_u32(vaddhn_u32(low, half_unit(low)), high, half_unit(high))
    })
}

/// BF16 from 16 values, every NaN as 0x7fc0: it is replaced first, since rounding its bits could make an infinity of it.
#[inline]
#[target_feature(enable = "neon")]
fn round_bf16(x: Floats) -> [uint16x8_t; 2] {
    round_bf16_normal(x.map(|x| canonical_nan(x, f32::from_bits(0x7fc0_0000))))
}

/// Splits 16 table entries into their low and their high bytes.
#[inline]
#[target_feature(enable = "neon")]
fn split_bytes(x: [uint16x8_t; 2]) -> [uint8x16_t; 2] {
    let [low, high] = x.map(|x| vreinterpretq_u8_u16(x));
    [vuzp1q_u8(low, high), vuzp2q_u8(low, high)]
}

/// Splits 16 values into four tables of bytes: all first bytes, all second bytes, and so on.
#[inline]
#[target_feature(enable = "neon")]
fn byte_planes(x: Floats) -> [uint8x16_t; 4] {
    let [a, b, c, d] = x.map(|x| vreinterpretq_u8_f32(x));
    let (even, odd) = (
        [vuzp1q_u8(a, b), vuzp1q_u8(c, d)],
        [vuzp2q_u8(a, b), vuzp2q_u8(c, d)],
    );
    [
        vuzp1q_u8(even[0], even[1]),
        vuzp1q_u8(odd[0], odd[1]),
        vuzp2q_u8(even[0], even[1]),
        vuzp2q_u8(odd[0], odd[1]),
    ]
}
