//! The operations as loops over arrays: what the compiler makes of them for any target.

use std::array::from_fn;

use super::Lanes;
use crate::half;

/// What the target has at least.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

type Floats = [f32; 16];
type Bytes = [u8; 32];

impl Lanes for Baseline {
    type Floats = Floats;
    type Bytes = Bytes;
    type Cells = [[[u8; 2]; 16]; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        [x; 16]
    }

    #[inline(always)]
    fn floats(self, x: &[f32; 16]) -> Floats {
        *x
    }

    #[inline(always)]
    fn array(self, x: Floats) -> [f32; 16] {
        x
    }

    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
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
    fn quarters(self, x: Floats) -> [Floats; 4] {
        from_fn(|i| from_fn(|j| x[4 * i + j / 4]))
    }

    #[inline(always)]
    fn widen_f16(self, x: &[[u8; 2]; 16]) -> Floats {
        x.map(half::from_f16)
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 32]) -> Bytes {
        *x
    }

    #[inline(always)]
    fn pair(self, low: &[u8; 16], high: &[u8; 16]) -> Bytes {
        from_fn(|i| if i < 16 { low[i] } else { high[i - 16] })
    }

    #[inline(always)]
    fn quads(self, x: [u64; 4]) -> Bytes {
        bytemuck::must_cast(x.map(u64::to_le_bytes))
    }

    #[inline(always)]
    fn nibbles(self, x: &[u8; 16]) -> Bytes {
        from_fn(|i| if i < 16 { x[i] & 15 } else { x[i - 16] >> 4 })
    }

    #[inline(always)]
    fn nibble_pairs(self, x: Bytes) -> [Bytes; 2] {
        from_fn(|half| from_fn(|i| x[16 * half + i / 2] >> (i % 2 * 4) & 15))
    }

    #[inline(always)]
    fn turn_words(self, rows: [Bytes; 4]) -> [Bytes; 4] {
        from_fn(|word| from_fn(|i| rows[i % 16 / 4][i / 16 * 16 + 4 * word + i % 4]))
    }

    #[inline(always)]
    fn turn_bytes(self, x: Bytes) -> Bytes {
        from_fn(|i| x[i / 16 * 16 + i % 4 * 4 + i % 16 / 4])
    }

    #[inline(always)]
    fn nibbles_by_eight(self, x: &[u8; 16]) -> Bytes {
        from_fn(|i| x[i % 8 + i / 16 * 8] >> (i / 8 % 2 * 4) & 15)
    }

    #[inline(always)]
    fn pairs_of_bits(self, x: &[u8; 8]) -> Bytes {
        from_fn(|i| x[i / 4] >> (i / 2 % 2 * 4) & [3, 12][i % 2])
    }

    #[inline(always)]
    fn byte_array(self, x: Bytes) -> [u8; 32] {
        x
    }

    #[inline(always)]
    fn splat_byte(self, x: u8) -> Bytes {
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
    fn add_bytes(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub_bytes(self, a: Bytes, b: Bytes) -> Bytes {
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
    fn keep(self, bits: u32, x: Bytes) -> Bytes {
        from_fn(|i| if bits >> i & 1 == 0 { 0 } else { x[i] })
    }

    #[inline(always)]
    fn negate(self, bits: u32, x: Bytes) -> Bytes {
        from_fn(|i| {
            if bits >> i & 1 == 0 {
                x[i]
            } else {
                x[i].wrapping_neg()
            }
        })
    }

    #[inline(always)]
    fn above(self, x: Bytes, limit: u8) -> Bytes {
        from_fn(|i| if x[i] > limit { 0xff } else { 0 })
    }

    #[inline(always)]
    fn unsigned(self, x: Bytes) -> [Floats; 2] {
        [
            from_fn(|i| f32::from(x[i])),
            from_fn(|i| f32::from(x[i + 16])),
        ]
    }

    #[inline(always)]
    fn signed(self, x: Bytes) -> [Floats; 2] {
        [
            from_fn(|i| f32::from(x[i].cast_signed())),
            from_fn(|i| f32::from(x[i + 16].cast_signed())),
        ]
    }

    #[inline(always)]
    fn put_f32(self, x: [Floats; 2], out: &mut [[u8; 4]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = x.to_le_bytes();
        }
    }

    #[inline(always)]
    fn put_f16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = half::f16(*x).to_le_bytes();
        }
    }

    #[inline(always)]
    fn put_plain_f16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        self.put_f16(x, out);
    }

    #[inline(always)]
    fn put_bf16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        for (x, out) in x.as_flattened().iter().zip(out) {
            *out = half::bf16(*x).to_le_bytes();
        }
    }

    #[inline(always)]
    fn put_plain_bf16(self, x: [Floats; 2], out: &mut [[u8; 2]; 32]) {
        self.put_bf16(x, out);
    }

    #[inline(always)]
    fn cells_f16(self, tables: [Floats; 2]) -> Self::Cells {
        tables.map(|table| table.map(|x| half::f16(x).to_le_bytes()))
    }

    #[inline(always)]
    fn cells_plain_f16(self, tables: [Floats; 2]) -> Self::Cells {
        self.cells_f16(tables)
    }

    #[inline(always)]
    fn cells_plain_bf16(self, tables: [Floats; 2]) -> Self::Cells {
        self.cells_bf16(tables)
    }

    #[inline(always)]
    fn cells_bf16(self, tables: [Floats; 2]) -> Self::Cells {
        tables.map(|table| table.map(|x| half::bf16(x).to_le_bytes()))
    }

    #[inline(always)]
    fn pick_f32(self, tables: [Floats; 2], codes: Bytes, out: &mut [[u8; 4]; 32]) {
        for (i, (code, out)) in codes.iter().zip(out).enumerate() {
            *out = tables[i / 16][usize::from(code & 15)].to_le_bytes();
        }
    }

    #[inline(always)]
    fn pick_16(
        self,
        tables: Self::Cells,
        which: [usize; 2],
        codes: Bytes,
        out: &mut [[u8; 2]; 32],
    ) {
        for (i, (code, out)) in codes.iter().zip(out).enumerate() {
            *out = tables[which[i / 16]][usize::from(code & 15)];
        }
    }
}

#[inline(always)]
fn each_u16(x: Bytes, f: impl Fn(u16) -> u16) -> Bytes {
    let mut out = x;
    for pair in out.as_chunks_mut().0 {
        *pair = f(u16::from_le_bytes(*pair)).to_le_bytes();
    }
    out
}
