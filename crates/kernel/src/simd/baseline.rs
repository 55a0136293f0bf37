//! The operations as loops over arrays, which the compiler vectorises with what the target has at least (SSE2 on x86-64).
//!
//! This is also the specification: `tests.rs` compares the other tokens with it, bit by bit.

use std::array::from_fn;

use super::{Simd, Stage};
use crate::half;

/// The token of the target's minimum: every machine has it, so it needs no proof.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

type Floats = [f32; 16];
type Bytes = [u8; 32];

impl Simd for Baseline {
    type Floats = Floats;
    type Ints = [i32; 16];
    type Mask = [bool; 16];
    type Bytes = Bytes;
    type Tables16 = [[[u8; 2]; 16]; 2];

    #[inline(always)]
    fn outline<T: Stage>(self, stage: T) {
        #[inline(never)]
        fn outlined<T: Stage>(stage: T) {
            stage.run(Baseline);
        }
        outlined(stage);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        [x; 16]
    }

    #[inline(always)]
    fn load_f32(self, x: &[f32; 16]) -> Floats {
        *x
    }

    #[inline(always)]
    fn to_f32_array(self, x: Floats) -> [f32; 16] {
        x
    }

    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
        // closures are harmless here: one that is not inlined is compiled for the baseline, and so is this
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn sqrt(self, x: Floats) -> Floats {
        x.map(f32::sqrt)
    }

    #[inline(always)]
    fn abs(self, x: Floats) -> Floats {
        x.map(f32::abs)
    }

    #[inline(always)]
    fn lt(self, a: Floats, b: Floats) -> [bool; 16] {
        from_fn(|i| a[i] < b[i])
    }

    #[inline(always)]
    fn le(self, a: Floats, b: Floats) -> [bool; 16] {
        from_fn(|i| a[i] <= b[i])
    }

    #[inline(always)]
    fn select(self, mask: [bool; 16], a: Floats, b: Floats) -> Floats {
        from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn select_ints(self, mask: [bool; 16], a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn both(self, a: [bool; 16], b: [bool; 16]) -> [bool; 16] {
        from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn mask_bits(self, mask: [bool; 16]) -> u16 {
        let mut bits = 0;
        for (i, lane) in mask.into_iter().enumerate() {
            bits |= u16::from(lane) << i;
        }
        bits
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> [i32; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn load_ints(self, x: &[i32; 16]) -> [i32; 16] {
        *x
    }

    #[inline(always)]
    fn to_int_array(self, x: [i32; 16]) -> [i32; 16] {
        x
    }

    #[inline(always)]
    fn add_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn min_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].min(b[i]))
    }

    #[inline(always)]
    fn max_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].max(b[i]))
    }

    #[inline(always)]
    fn and_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or_ints(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn shl_ints(self, x: [i32; 16], by: u32) -> [i32; 16] {
        x.map(|x| x << by)
    }

    #[inline(always)]
    fn shr_ints(self, x: [i32; 16], by: u32) -> [i32; 16] {
        x.map(|x| x >> by)
    }

    #[inline(always)]
    fn eq_ints(self, a: [i32; 16], b: [i32; 16]) -> [bool; 16] {
        from_fn(|i| a[i] == b[i])
    }

    #[inline(always)]
    fn ints_to_f32(self, x: [i32; 16]) -> Floats {
        x.map(|x| x as f32)
    }

    #[inline(always)]
    fn to_bits(self, x: Floats) -> [i32; 16] {
        x.map(|x| x.to_bits().cast_signed())
    }

    #[inline(always)]
    fn truncate(self, x: Floats) -> [i32; 16] {
        x.map(|x| {
            if x.abs() < 2_147_483_648.0 {
                x as i32
            } else {
                i32::MIN
            }
        })
    }

    #[inline(always)]
    fn lookup_8(self, table: Floats, index: [i32; 16]) -> Floats {
        index.map(|i| table[(i & 7).cast_unsigned() as usize])
    }

    #[inline(always)]
    fn least(self, x: Floats) -> f32 {
        x.into_iter().fold(f32::INFINITY, f32::min)
    }

    #[inline(always)]
    fn widen_u16(self, x: &[u16; 16]) -> [i32; 16] {
        x.map(i32::from)
    }

    #[inline(always)]
    fn low_bytes(self, x: [i32; 16]) -> [u8; 16] {
        x.map(|x| x.cast_unsigned() as u8)
    }

    #[inline(always)]
    fn repeat_each_4(self, x: Floats) -> [Floats; 4] {
        from_fn(|i| from_fn(|j| x[4 * i + j / 4]))
    }

    #[inline(always)]
    fn widen_f16(self, x: &[[u8; 2]; 16]) -> Floats {
        x.map(half::from_f16)
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; 32]) -> Bytes {
        *x
    }

    #[inline(always)]
    fn concat_u8x16(self, low: &[u8; 16], high: &[u8; 16]) -> Bytes {
        from_fn(|i| if i < 16 { low[i] } else { high[i - 16] })
    }

    #[inline(always)]
    fn load_u64x4(self, x: [u64; 4]) -> Bytes {
        bytemuck::must_cast(x.map(u64::to_le_bytes))
    }

    #[inline(always)]
    fn unpack_nibbles(self, x: &[u8; 16]) -> Bytes {
        from_fn(|i| if i < 16 { x[i] & 15 } else { x[i - 16] >> 4 })
    }

    #[inline(always)]
    fn unpack_nibbles_interleaved(self, x: Bytes) -> [Bytes; 2] {
        from_fn(|half| from_fn(|i| x[16 * half + i / 2] >> (i % 2 * 4) & 15))
    }

    #[inline(always)]
    fn transpose_u32(self, rows: [Bytes; 4]) -> [Bytes; 4] {
        from_fn(|word| from_fn(|i| rows[i % 16 / 4][i / 16 * 16 + 4 * word + i % 4]))
    }

    #[inline(always)]
    fn transpose_u8(self, x: Bytes) -> Bytes {
        from_fn(|i| x[i / 16 * 16 + i % 4 * 4 + i % 16 / 4])
    }

    #[inline(always)]
    fn unpack_nibbles_per_8(self, x: &[u8; 16]) -> Bytes {
        from_fn(|i| x[i % 8 + i / 16 * 8] >> (i / 8 % 2 * 4) & 15)
    }

    #[inline(always)]
    fn unpack_bit_pairs(self, x: &[u8; 8]) -> Bytes {
        from_fn(|i| x[i / 4] >> (i / 2 % 2 * 4) & [3, 12][i % 2])
    }

    #[inline(always)]
    fn to_u8_array(self, x: Bytes) -> [u8; 32] {
        x
    }

    #[inline(always)]
    fn splat_u8(self, x: u8) -> Bytes {
        [x; 32]
    }

    #[inline(always)]
    fn and(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn add_u8(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub_u8(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn shr_u16(self, x: Bytes, by: u32) -> Bytes {
        each_u16(x, |x| x >> by)
    }

    #[inline(always)]
    fn shl_u16(self, x: Bytes, by: u32) -> Bytes {
        each_u16(x, |x| x << by)
    }

    #[inline(always)]
    fn select_or_zero(self, bits: u32, x: Bytes) -> Bytes {
        from_fn(|i| if bits >> i & 1 == 0 { 0 } else { x[i] })
    }

    #[inline(always)]
    fn negate_where(self, bits: u32, x: Bytes) -> Bytes {
        from_fn(|i| {
            if bits >> i & 1 == 0 {
                x[i]
            } else {
                x[i].wrapping_neg()
            }
        })
    }

    #[inline(always)]
    fn gt_u8(self, x: Bytes, limit: u8) -> Bytes {
        from_fn(|i| if x[i] > limit { 0xff } else { 0 })
    }

    #[inline(always)]
    fn u8_to_f32(self, x: Bytes) -> [Floats; 2] {
        [
            from_fn(|i| f32::from(x[i])),
            from_fn(|i| f32::from(x[i + 16])),
        ]
    }

    #[inline(always)]
    fn i8_to_f32(self, x: Bytes) -> [Floats; 2] {
        [
            from_fn(|i| f32::from(x[i].cast_signed())),
            from_fn(|i| f32::from(x[i + 16].cast_signed())),
        ]
    }

    #[inline(always)]
    fn store_f32(self, x: [Floats; 2], out: &mut [[u8; 4]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = x.to_le_bytes();
        }
    }

    #[inline(always)]
    fn store_f16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = half::f16(*x).to_le_bytes();
        }
    }

    #[inline(always)]
    fn store_f16_normal(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        self.store_f16(x, out);
    }

    #[inline(always)]
    fn store_bf16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = half::bf16(*x).to_le_bytes();
        }
    }

    #[inline(always)]
    fn store_bf16_normal(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        self.store_bf16(x, out);
    }

    #[inline(always)]
    fn tables_f16(self, tables: [Floats; 2]) -> Self::Tables16 {
        tables.map(|table| table.map(|x| half::f16(x).to_le_bytes()))
    }

    #[inline(always)]
    fn tables_f16_normal(self, tables: [Floats; 2]) -> Self::Tables16 {
        self.tables_f16(tables)
    }

    #[inline(always)]
    fn tables_bf16_normal(self, tables: [Floats; 2]) -> Self::Tables16 {
        self.tables_bf16(tables)
    }

    #[inline(always)]
    fn tables_bf16(self, tables: [Floats; 2]) -> Self::Tables16 {
        tables.map(|table| table.map(|x| half::bf16(x).to_le_bytes()))
    }

    #[inline(always)]
    fn lookup_f32(self, tables: [Floats; 2], codes: Bytes, out: &mut [[u8; 4]; 32]) {
        for (i, (code, out)) in codes.iter().zip(out).enumerate() {
            *out = tables[i / 16][usize::from(code & 15)].to_le_bytes();
        }
    }

    #[inline(always)]
    fn lookup_16(
        self,
        tables: Self::Tables16,
        which: [usize; 2],
        codes: Bytes,
        out: &mut [[u8; 2]; 32],
    ) {
        for (i, (code, out)) in codes.iter().zip(out).enumerate() {
            *out = tables[which[i / 16]][usize::from(code & 15)];
        }
    }
}

/// Applies `f` to each pair of bytes as a little-endian 16-bit number.
#[inline(always)]
fn each_u16(x: Bytes, f: impl Fn(u16) -> u16) -> Bytes {
    let mut out = x;
    for pair in out.as_chunks_mut().0 {
        *pair = f(u16::from_le_bytes(*pair)).to_le_bytes();
    }
    out
}
