//! The operations in NEON: four registers of four F32.

use std::arch::aarch64::*;
use std::array::from_fn;

use bytemuck::must_cast;

use super::Lanes;
use crate::half;
use crate::isa::primitives;

/// NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) fn here() -> Self {
        Self(())
    }
}

type Floats = [float32x4_t; 4];
type Bytes = [uint8x16_t; 2];
/// Lower and upper bytes of each table's cells.
type Cells = [[uint8x16_t; 2]; 2];

impl Lanes for Neon {
    type Floats = Floats;
    type Bytes = Bytes;
    type Cells = Cells;

    primitives! { "neon";
        fn splat(x: f32) -> Floats { [vdupq_n_f32(x); 4] }
        fn floats(x: &[f32; 16]) -> Floats { must_cast(*x) }
        fn array(x: Floats) -> [f32; 16] { must_cast(x) }
        fn add(a: Floats, b: Floats) -> Floats { from_fn(|i| vaddq_f32(a[i], b[i])) }
        fn sub(a: Floats, b: Floats) -> Floats { from_fn(|i| vsubq_f32(a[i], b[i])) }
        fn mul(a: Floats, b: Floats) -> Floats { from_fn(|i| vmulq_f32(a[i], b[i])) }
        fn quarters(x: Floats) -> [Floats; 4] {
            x.map(|x| {
                [vdupq_laneq_f32::<0>(x), vdupq_laneq_f32::<1>(x), vdupq_laneq_f32::<2>(x), vdupq_laneq_f32::<3>(x)]
            })
        }
        fn widen_f16(x: &[[u8; 2]; 16]) -> Floats {
            let fours: [uint16x4_t; 4] = must_cast(*x);
            fours.map(|x| one_nan(vcvt_f32_f16(vreinterpret_f16_u16(x)), half::NAN))
        }

        fn bytes(x: &[u8; 32]) -> Bytes { must_cast(*x) }
        fn pair(low: &[u8; 16], high: &[u8; 16]) -> Bytes { [must_cast(*low), must_cast(*high)] }
        fn quads(x: [u64; 4]) -> Bytes { must_cast(x) }
        fn nibbles(x: &[u8; 16]) -> Bytes { split(must_cast(*x)) }
        fn nibble_pairs(x: Bytes) -> [Bytes; 2] {
            x.map(|x| {
                let [low, high] = split(x);
                [vzip1q_u8(low, high), vzip2q_u8(low, high)]
            })
        }
        fn turn_words(rows: [Bytes; 4]) -> [Bytes; 4] {
            let [first, second] = [0, 1].map(|i| turned(rows.map(|row| row[i])));
            from_fn(|word| [first[word], second[word]])
        }
        fn turn_bytes(x: Bytes) -> Bytes {
            let order: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
            x.map(|x| vqtbl1q_u8(x, must_cast(order)))
        }
        fn nibbles_by_eight(x: &[u8; 16]) -> Bytes {
            let [low, high] = split(must_cast(*x)).map(|x| vreinterpretq_u64_u8(x));
            [vreinterpretq_u8_u64(vzip1q_u64(low, high)), vreinterpretq_u8_u64(vzip2q_u64(low, high))]
        }
        fn pairs_of_bits(x: &[u8; 8]) -> Bytes {
            let four_times: Bytes = must_cast([0u32, 1, 2, 3, 4, 5, 6, 7].map(|i| 0x0101_0101 * i));
            let x = vreinterpretq_u8_u64(vdupq_n_u64(u64::from_le_bytes(*x)));
            let right = must_cast([[0i8, 0, -4, -4]; 4]);
            four_times.map(|i| vandq_u8(vshlq_u8(vqtbl1q_u8(x, i), right), must_cast([[3u8, 12]; 8])))
        }
        fn byte_array(x: Bytes) -> [u8; 32] { must_cast(x) }
        fn splat_byte(x: u8) -> Bytes { [vdupq_n_u8(x); 2] }
        fn and(a: Bytes, b: Bytes) -> Bytes { [vandq_u8(a[0], b[0]), vandq_u8(a[1], b[1])] }
        fn or(a: Bytes, b: Bytes) -> Bytes { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
        fn add_bytes(a: Bytes, b: Bytes) -> Bytes { [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])] }
        fn sub_bytes(a: Bytes, b: Bytes) -> Bytes { [vsubq_u8(a[0], b[0]), vsubq_u8(a[1], b[1])] }
        fn shr_u16(x: Bytes, by: u32) -> Bytes { shift(x, -by.cast_signed()) }
        fn shl_u16(x: Bytes, by: u32) -> Bytes { shift(x, by.cast_signed()) }
        fn keep(bits: u32, x: Bytes) -> Bytes {
            let kept = spread(bits);
            [vandq_u8(x[0], kept[0]), vandq_u8(x[1], kept[1])]
        }
        fn negate(bits: u32, x: Bytes) -> Bytes {
            let negative = spread(bits);
            from_fn(|i| vsubq_u8(veorq_u8(x[i], negative[i]), negative[i]))
        }
        fn above(x: Bytes, limit: u8) -> Bytes { x.map(|x| vcgtq_u8(x, vdupq_n_u8(limit))) }
        fn unsigned(x: Bytes) -> [Floats; 2] {
            x.map(|x| {
                let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
                let [low, high] = [low, high].map(|x| [vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x)]);
                [low[0], low[1], high[0], high[1]].map(|x| vcvtq_f32_u32(x))
            })
        }
        fn signed(x: Bytes) -> [Floats; 2] {
            x.map(|x| {
                let x = vreinterpretq_s8_u8(x);
                let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
                let [low, high] = [low, high].map(|x| [vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)]);
                [low[0], low[1], high[0], high[1]].map(|x| vcvtq_f32_s32(x))
            })
        }

        fn put_f32(x: [Floats; 2], out: &mut [[u8; 4]; 32]) { *out = must_cast(x); }
        fn put_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| f16(x))); }
        fn put_plain_f16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| plain_f16(x))); }
        fn put_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| bf16(x))); }
        fn put_plain_bf16(x: [Floats; 2], out: &mut [[u8; 2]; 32]) { *out = must_cast(x.map(|x| plain_bf16(x))); }
        fn cells_f16(tables: [Floats; 2]) -> Cells { tables.map(|x| cells(f16(x))) }
        fn cells_plain_f16(tables: [Floats; 2]) -> Cells { tables.map(|x| cells(plain_f16(x))) }
        fn cells_bf16(tables: [Floats; 2]) -> Cells { tables.map(|x| cells(bf16(x))) }
        fn cells_plain_bf16(tables: [Floats; 2]) -> Cells { tables.map(|x| cells(plain_bf16(x))) }
        fn pick_f32(tables: [Floats; 2], codes: Bytes, out: &mut [[u8; 4]; 32]) {
            let picked: [[uint16x8_t; 4]; 2] = from_fn(|i| {
                let codes = vandq_u8(codes[i], vdupq_n_u8(15));
                let [a, b, c, d] = planes(tables[i]).map(|plane| vqtbl1q_u8(plane, codes));
                let [low, high] = [[vzip1q_u8(a, b), vzip2q_u8(a, b)], [vzip1q_u8(c, d), vzip2q_u8(c, d)]]
                    .map(|halves| halves.map(|x| vreinterpretq_u16_u8(x)));
                [
                    vzip1q_u16(low[0], high[0]),
                    vzip2q_u16(low[0], high[0]),
                    vzip1q_u16(low[1], high[1]),
                    vzip2q_u16(low[1], high[1]),
                ]
            });
            *out = must_cast(picked);
        }
        fn pick_16(tables: Cells, which: [usize; 2], codes: Bytes, out: &mut [[u8; 2]; 32]) {
            let picked: [[uint8x16_t; 2]; 2] = from_fn(|i| {
                let codes = vandq_u8(codes[i], vdupq_n_u8(15));
                let [low, high] = tables[which[i]].map(|bytes| vqtbl1q_u8(bytes, codes));
                [vzip1q_u8(low, high), vzip2q_u8(low, high)]
            });
            *out = must_cast(picked);
        }
    }
}

/// Low nibbles and high ones.
#[inline]
#[target_feature(enable = "neon")]
fn split(x: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)]
}

/// Four rows of four 32-bit words, turned.
#[inline]
#[target_feature(enable = "neon")]
fn turned(rows: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
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

/// Every two bytes as one number, shifted to the left, or to the right by less than nothing.
#[inline]
#[target_feature(enable = "neon")]
fn shift(x: Bytes, by: i32) -> Bytes {
    let by = vdupq_n_s16(by as i16);
    x.map(|x| vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(x), by)))
}

/// A byte of ones for each bit.
#[inline]
#[target_feature(enable = "neon")]
fn spread(bits: u32) -> Bytes {
    // each byte gets the byte that has its bit, then the bit
    let bytes = vreinterpretq_u8_u32(vdupq_n_u32(bits));
    let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let source: Bytes = must_cast([[0u8; 8], [1; 8], [2; 8], [3; 8]]);
    source.map(|source| vtstq_u8(vqtbl1q_u8(bytes, source), bit))
}

#[inline]
#[target_feature(enable = "neon")]
fn one_nan(x: float32x4_t, nan: f32) -> float32x4_t {
    vbslq_f32(vceqq_f32(x, x), x, vdupq_n_f32(nan))
}

#[inline]
#[target_feature(enable = "neon")]
fn plain_f16([a, b, c, d]: Floats) -> [uint16x8_t; 2] {
    [[a, b], [c, d]]
        .map(|[low, high]| vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)))
}

#[inline]
#[target_feature(enable = "neon")]
fn f16(x: Floats) -> [uint16x8_t; 2] {
    // the conversion makes a NaN quiet and keeps upper bits of it: leave none
    plain_f16(x).map(|x| {
        let nan = vcgtq_u16(vandq_u16(x, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7c00));
        vbicq_u16(x, vandq_u16(nan, vdupq_n_u16(0x01ff)))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn plain_bf16([a, b, c, d]: Floats) -> [uint16x8_t; 2] {
    [[a, b], [c, d]].map(|[low, high]| {
        let [low, high] = [low, high].map(|x| vreinterpretq_u32_f32(x));
        // added to the number, of which the upper half is kept
        let half = |bits: uint32x4_t| {
            vaddq_u32(
                vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1)),
                vdupq_n_u32(0x7fff),
            )
        };
        vaddhn_high_u32(vaddhn_u32(low, half(low)), high, half(high))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn bf16(x: Floats) -> [uint16x8_t; 2] {
    plain_bf16(x.map(|x| one_nan(x, f32::from_bits(0x7fc0_0000))))
}

/// Lower and upper bytes apart.
#[inline]
#[target_feature(enable = "neon")]
fn cells(x: [uint16x8_t; 2]) -> [uint8x16_t; 2] {
    let [low, high] = x.map(|x| vreinterpretq_u8_u16(x));
    [vuzp1q_u8(low, high), vuzp2q_u8(low, high)]
}

/// The first bytes of sixteen numbers, the second, third and fourth.
#[inline]
#[target_feature(enable = "neon")]
fn planes(x: Floats) -> [uint8x16_t; 4] {
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
