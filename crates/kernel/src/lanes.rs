//! What kernels are written in: sixteen F32 or thirty-two bytes at a time, by the instruction set's own means.
//!
//! A token (`Baseline`, `Avx2`, …) stands for an instruction set. It exists only where that set is enabled, so
//! what it offers is safe. All tokens give the same bits.

mod baseline;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(test)]
mod tests;

pub(crate) use baseline::Baseline;

#[cfg(target_arch = "x86_64")]
pub(crate) use {
    avx2::Avx2,
    avx512::{Avx512, Avx512Bf16},
};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use neon::Neon;

/// An instruction set's operations.
pub(crate) trait Lanes: Copy + 'static {
    /// Sixteen F32.
    type Floats: Copy;
    /// Thirty-two bytes.
    type Bytes: Copy;
    /// Two tables of sixteen 16-bit cells.
    type Cells: Copy;
    /// Whether an operation can spread a number from memory over a register as part of itself.
    const SPREADS: bool = false;

    // floats

    fn splat(self, x: f32) -> Self::Floats;
    fn floats(self, x: &[f32; 16]) -> Self::Floats;
    fn array(self, x: Self::Floats) -> [f32; 16];
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The first four, four times each; the next four; and so on.
    fn quarters(self, x: Self::Floats) -> [Self::Floats; 4];
    /// F32 from F16, exact; every NaN becomes the one of [`super::half::NAN`].
    fn widen_f16(self, x: &[[u8; 2]; 16]) -> Self::Floats;
    /// As [`Lanes::widen_f16`], of four from each window: its first, and so many F16 further on each time.
    #[inline(always)]
    fn widen_f16_apart(self, windows: [&[u8; 64]; 4], apart: u16) -> Self::Floats {
        let mut halves = [[0; 2]; 16];
        for (halves, window) in halves.as_chunks_mut::<4>().0.iter_mut().zip(windows) {
            let (window, apart) = (window.as_chunks().0, usize::from(apart));
            *halves = [
                window[0],
                window[apart],
                window[2 * apart],
                window[3 * apart],
            ];
        }
        self.widen_f16(&halves)
    }

    // bytes

    fn bytes(self, x: &[u8; 32]) -> Self::Bytes;
    fn pair(self, low: &[u8; 16], high: &[u8; 16]) -> Self::Bytes;
    fn quads(self, x: [u64; 4]) -> Self::Bytes;
    /// All low nibbles, then all high ones.
    fn nibbles(self, x: &[u8; 16]) -> Self::Bytes;
    /// Low and high nibble of each byte in turn, for the first and the second sixteen bytes.
    fn nibble_pairs(self, x: Self::Bytes) -> [Self::Bytes; 2];
    /// Four rows of twice four 32-bit words, turned: words 0 and 4 of each row, words 1 and 5, and so on.
    fn turn_words(self, rows: [Self::Bytes; 4]) -> [Self::Bytes; 4];
    /// Each sixteen bytes, four rows of four, turned.
    fn turn_bytes(self, x: Self::Bytes) -> Self::Bytes;
    /// As [`Lanes::nibbles`], of the first eight bytes, then of the others.
    fn nibbles_by_eight(self, x: &[u8; 16]) -> Self::Bytes;
    /// Bits 0 and 1, 2 and 3, 4 and 5, 6 and 7 of each byte, of which the second and fourth pair stay where they are
    /// in their nibble.
    fn pairs_of_bits(self, x: &[u8; 8]) -> Self::Bytes;
    fn byte_array(self, x: Self::Bytes) -> [u8; 32];
    fn splat_byte(self, x: u8) -> Self::Bytes;
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn add_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn sub_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Every two bytes as one little-endian number, shifted right: bits of the upper byte enter the lower.
    fn shr_u16(self, x: Self::Bytes, by: u32) -> Self::Bytes;
    /// As [`Lanes::shr_u16`], to the left.
    fn shl_u16(self, x: Self::Bytes, by: u32) -> Self::Bytes;
    /// The bytes whose bit is set; zeros for the others.
    fn keep(self, bits: u32, x: Self::Bytes) -> Self::Bytes;
    /// The bytes, negated where their bit is set.
    fn negate(self, bits: u32, x: Self::Bytes) -> Self::Bytes;
    /// All bits set where a byte is greater, unsigned, than this.
    fn above(self, x: Self::Bytes, limit: u8) -> Self::Bytes;
    fn unsigned(self, x: Self::Bytes) -> [Self::Floats; 2];
    fn signed(self, x: Self::Bytes) -> [Self::Floats; 2];

    // cells

    fn put_f32(self, x: [Self::Floats; 2], out: &mut [[u8; 4]; 32]);
    /// Rounded to nearest even; a NaN keeps its sign and becomes the quiet one without payload.
    fn put_f16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);
    /// As [`Lanes::put_f16`], for values that are no NaN.
    fn put_plain_f16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);
    /// Rounded to nearest even; every NaN becomes 0x7fc0.
    fn put_bf16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);
    /// As [`Lanes::put_bf16`], for values that are neither subnormal nor NaN.
    fn put_plain_bf16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);
    /// Tables of F16 cells, as [`Lanes::put_f16`] makes them.
    fn cells_f16(self, tables: [Self::Floats; 2]) -> Self::Cells;
    /// Tables of F16 cells, as [`Lanes::put_plain_f16`] makes them.
    fn cells_plain_f16(self, tables: [Self::Floats; 2]) -> Self::Cells;
    /// Tables of BF16 cells, as [`Lanes::put_bf16`] makes them.
    fn cells_bf16(self, tables: [Self::Floats; 2]) -> Self::Cells;
    /// Tables of BF16 cells, as [`Lanes::put_plain_bf16`] makes them.
    fn cells_plain_bf16(self, tables: [Self::Floats; 2]) -> Self::Cells;
    /// Entries by the low four bits of each code, of the first table for the first sixteen codes.
    fn pick_f32(self, tables: [Self::Floats; 2], codes: Self::Bytes, out: &mut [[u8; 4]; 32]);
    /// Entries by the low four bits of each code, of these tables for the first and the second sixteen codes.
    fn pick_16(
        self,
        tables: Self::Cells,
        which: [usize; 2],
        codes: Self::Bytes,
        out: &mut [[u8; 2]; 32],
    );
    /// As [`Lanes::pick_f32`] of the table times each factor.
    #[inline(always)]
    fn pick_scaled_f32(
        self,
        table: Self::Floats,
        factors: [f32; 2],
        codes: Self::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        let [first, second] = [self.splat(factors[0]), self.splat(factors[1])];
        self.pick_f32(
            [self.mul(table, first), self.mul(table, second)],
            codes,
            out,
        );
    }
    /// As [`Lanes::pick_f32`] of one table, the codes being all low nibbles, then all high ones.
    #[inline(always)]
    fn pick_nibbles_f32(self, table: Self::Floats, codes: &[u8; 16], out: &mut [[u8; 4]; 32]) {
        self.pick_f32([table; 2], self.nibbles(codes), out);
    }
    /// As [`Lanes::pick_16`] of one table, the codes being all low nibbles, then all high ones.
    #[inline(always)]
    fn pick_nibbles_16(
        self,
        tables: Self::Cells,
        which: usize,
        codes: &[u8; 16],
        out: &mut [[u8; 2]; 32],
    ) {
        self.pick_16(tables, [which; 2], self.nibbles(codes), out);
    }
}
