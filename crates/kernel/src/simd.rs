//! The vocabulary that kernels are written in: operations on 16 F32 values or 32 bytes.
//!
//! # Tokens
//!
//! [`Simd`] is implemented by zero-sized *tokens*, one per instruction set: [`Baseline`], `Avx2`, `Avx512`, `Avx512Bf16`
//! and `Neon`. Holding a token proves that the instruction set is enabled, so the operations are safe functions:
//!
//! 1. A token's constructor `new` is itself a `#[target_feature]` function. Safe code can call it only from a function
//!    that has at least the same features enabled.
//! 2. `kernel!` (see [`crate::isa`]) emits such a function per instruction set. Its caller, `Build::run`, checks the
//!    processor's features first. That check is one of the crate's two places where `unsafe` vouches for a feature.
//! 3. Inside a token's methods, `operations!` calls the intrinsics. That is the other place, and the token is its proof.
//!
//! memchr's `Vector` trait serves the same purpose with `unsafe fn` methods, whose callers repeat the proof at every
//! call. Here the type system carries it.
//!
//! # Widths
//!
//! Every token works on the same logical widths whatever its registers hold: 16 F32 are one register with AVX-512, two
//! with AVX2, four with NEON; 32 bytes are one register with AVX2 and AVX-512, two with NEON. Kernels therefore have
//! one body. The widths suit the formats: ggml's blocks and groups have 16 or 32 elements.
//!
//! # Equality
//!
//! All tokens give the same bits for the same input, rounding and NaN included; `tests.rs` compares each operation with
//! [`Baseline`]. There is no fused multiply-add, since the reference implementations round twice.
//!
//! # Inlining
//!
//! Every method is `#[inline(always)]`, and so is everything that a kernel calls. An intrinsic that ends up in a function
//! without its target feature becomes a call. See [`crate::isa::kernel`] and experiment 41 in `docs/perf-experiments.md`.
//!
//! In the instruction lists below, "AVX2" names the instructions of one register of the pair, and VEX and EVEX forms are
//! not told apart.

mod baseline;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
))]
mod operations;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use baseline::Baseline;

#[cfg(target_arch = "x86_64")]
pub(crate) use {
    avx2::Avx2,
    avx512::{Avx512, Avx512Bf16},
};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use neon::Neon;

/// A part of kernels that does not depend on the output type, or is rarely run: [`Simd::outline`] calls it instead of having
/// it compiled into each build of each kernel. For rows and columns this takes away half of the machine code, which is the
/// time to compile it (experiment 61). The call costs little beside the 16 values, or mostly hundreds of codes, that a stage does.
///
/// `run` and all that it calls is `#[inline(always)]`, as in a kernel.
pub(crate) trait Stage {
    fn run<S: Simd>(self, simd: S);
}

/// The operations of one instruction set. See the [module](self) for tokens, widths and equality.
pub(crate) trait Simd: Copy + 'static {
    /// 16 F32 values.
    type Floats: Copy;
    /// 16 I32 values, in the lanes of [`Simd::Floats`].
    type Ints: Copy;
    /// A truth value per lane of [`Simd::Floats`].
    type Mask: Copy;
    /// 32 bytes.
    type Bytes: Copy;
    /// Two lookup tables of 16 entries, each entry an F16 or BF16.
    type Tables16: Copy;
    /// Whether an arithmetic instruction can broadcast a memory operand to all lanes (AVX-512's `{1to16}`). Kernels that
    /// use a scale twice then load it twice, since the load is part of the multiplication; see
    /// [`reload_operand`](crate::batch::reload_operand).
    const HAS_EMBEDDED_BROADCAST: bool = false;

    /// Runs a stage in a function of its own, which is compiled once for the instruction set.
    fn outline<T: Stage>(self, stage: T);

    // F32 values

    /// Sets all 16 lanes to `x`.
    ///
    /// AVX2, AVX-512: `vbroadcastss`, free of the shuffle port if `x` is in memory. NEON: `dup`, or `ld1r` from memory.
    fn splat(self, x: f32) -> Self::Floats;

    /// Loads 16 values: lane `i` is `x[i]`. Unaligned loads: `vmovups`; NEON `ld1`.
    fn load_f32(self, x: &[f32; 16]) -> Self::Floats;

    /// Returns the lanes as an array. Kernels use it to put scales into memory, where each is then broadcast by a load.
    ///
    /// AVX2, AVX-512: `vmovups`; NEON: `st1`.
    fn to_f32_array(self, x: Self::Floats) -> [f32; 16];

    /// `a + b` per lane, rounded to nearest even: `vaddps`; NEON `fadd`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a - b` per lane, rounded to nearest even: `vsubps`; NEON `fsub`.
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a * b` per lane, rounded to nearest even: `vmulps`; NEON `fmul`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    // comparisons, choices and integers per lane: what encoders need besides (`encode.rs`)

    /// `a / b` per lane, rounded to nearest even: `vdivps`; NEON `fdiv`.
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// The square root per lane, rounded to nearest even: `vsqrtps`; NEON `fsqrt`.
    fn sqrt(self, x: Self::Floats) -> Self::Floats;

    /// Clears the sign: `vandps`; NEON `fabs`.
    fn abs(self, x: Self::Floats) -> Self::Floats;

    /// Whether `a < b`; false if one is NaN. `vcmpps`; NEON `fcmgt`.
    fn lt(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;

    /// Whether `a <= b`; false if one is NaN. `vcmpps`; NEON `fcmge`.
    fn le(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;

    /// Lane `i` of `a` where `mask` is true, else of `b`: `vblendvps`, `vblendmps`; NEON `bsl`.
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// [`Simd::select`] of integers.
    fn select_ints(self, mask: Self::Mask, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Whether both are true: `vandps`, `kandw`; NEON `and`.
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;

    /// The truth values as bits, lane 0 lowest: `vmovmskps`, `kmovw`.
    fn mask_bits(self, mask: Self::Mask) -> u16;

    /// Sets all 16 lanes to `x`.
    fn splat_int(self, x: i32) -> Self::Ints;

    /// Loads 16 integers.
    fn load_ints(self, x: &[i32; 16]) -> Self::Ints;

    /// Returns the lanes as an array.
    fn to_int_array(self, x: Self::Ints) -> [i32; 16];

    /// `a + b` per lane, modulo 2^32: `vpaddd`; NEON `add`.
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// `a - b` per lane, modulo 2^32: `vpsubd`; NEON `sub`.
    fn sub_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// The lesser of two signed integers: `vpminsd`; NEON `smin`.
    fn min_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// The greater of two signed integers: `vpmaxsd`; NEON `smax`.
    fn max_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Bitwise and: `vpand`; NEON `and`.
    fn and_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Bitwise or: `vpor`; NEON `orr`.
    fn or_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Shifts left, towards greater values: `vpslld`; NEON `ushl`.
    fn shl_ints(self, x: Self::Ints, by: u32) -> Self::Ints;

    /// Shifts right and copies the sign: `vpsrad`; NEON `sshl` by a negative count.
    fn shr_ints(self, x: Self::Ints, by: u32) -> Self::Ints;

    /// Whether `a == b`: `vpcmpeqd`; NEON `cmeq`.
    fn eq_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask;

    /// Converts to F32, rounded to nearest even: `vcvtdq2ps`; NEON `scvtf`.
    fn ints_to_f32(self, x: Self::Ints) -> Self::Floats;

    /// The bits of the values: no instruction.
    fn to_bits(self, x: Self::Floats) -> Self::Ints;

    /// Converts to integers towards zero; what no I32 holds, and NaN, becomes `i32::MIN`, as on x86: `vcvttps2dq`; NEON
    /// `fcvtzs` and a selection.
    fn truncate(self, x: Self::Floats) -> Self::Ints;

    /// For each lane the entry of `table` at the low three bits of `index`. The upper eight lanes of `table` repeat the lower
    /// ones. AVX2, AVX-512: `vpermps`; NEON: by arrays.
    fn lookup_8(self, table: Self::Floats, index: Self::Ints) -> Self::Floats;

    /// The least of 16 values that are not NaN, by halves: `vminps` after shuffles; NEON `fminv`.
    fn least(self, x: Self::Floats) -> f32;

    /// Zero-extends 16 numbers of 16 bits: `vpmovzxwd`; NEON `ushll`.
    fn widen_u16(self, x: &[u16; 16]) -> Self::Ints;

    /// The low byte of each lane: AVX-512 `vpmovdb`; AVX2 by packing.
    fn low_bytes(self, x: Self::Ints) -> [u8; 16];

    /// Loads a column from each of 16 rows: lane `r` of vector `c` is `rows[r][c]`.
    #[inline(always)]
    fn transpose_f32(self, rows: [&[f32; 16]; 16]) -> [Self::Floats; 16] {
        let mut columns = [[0.0; 16]; 16];
        for (r, row) in rows.iter().enumerate() {
            for (column, x) in columns.iter_mut().zip(*row) {
                column[r] = *x;
            }
        }
        let mut out = [self.splat(0.0); 16];
        for (out, column) in out.iter_mut().zip(&columns) {
            *out = self.load_f32(column);
        }
        out
    }

    /// Repeats each lane four times: vector `k` of the result has lanes `4 * k .. 4 * k + 4` of `x`, four copies each.
    ///
    /// Q2_K has one scale per group and four values per code: this lines up four groups' scales with a table of 4 × 4.
    /// AVX2, AVX-512: `vpermps`; NEON: `dup` by lane.
    fn repeat_each_4(self, x: Self::Floats) -> [Self::Floats; 4];

    /// Converts 16 little-endian F16 to F32, which is exact. Every NaN becomes [`half::NAN`](crate::half::NAN) with no
    /// payload, because the conversion would else pass payloads on that depend on the instruction set.
    ///
    /// AVX2, AVX-512: `vcvtph2ps`, then a blend where the lane compares unordered with itself. NEON: `fcvtl`, `fcmeq`,
    /// `bsl`.
    fn widen_f16(self, x: &[[u8; 2]; 16]) -> Self::Floats;

    /// Like [`Simd::widen_f16`], on F16 that are not adjacent: from each of four windows of 64 bytes, the F16 at indices 0,
    /// `stride`, `2 * stride` and `3 * stride` (in units of two bytes).
    ///
    /// Gathers the scales of 16 small blocks, such as Q4_0's of 18 bytes: one window spans four blocks. AVX-512 picks
    /// eight F16 from two windows with one `vpermt2w`, where inserting them one by one takes a shuffle each (experiment
    /// 47). Other instruction sets have no 16-bit permutation of 64 bytes and copy through memory.
    #[inline(always)]
    fn widen_f16_strided(self, windows: [&[u8; 64]; 4], stride: u16) -> Self::Floats {
        let mut halves = [[0; 2]; 16];
        for (halves, window) in halves.as_chunks_mut::<4>().0.iter_mut().zip(windows) {
            let (window, stride) = (window.as_chunks().0, usize::from(stride));
            *halves = [
                window[0],
                window[stride],
                window[2 * stride],
                window[3 * stride],
            ];
        }
        self.widen_f16(&halves)
    }

    // bytes

    /// Loads 32 bytes: `vmovdqu`; NEON two `ld1`.
    fn load_u8(self, x: &[u8; 32]) -> Self::Bytes;

    /// Loads two separate runs of 16 bytes into the low and the high half: `vmovdqu` and `vinserti128` from memory;
    /// NEON two `ld1`.
    fn concat_u8x16(self, low: &[u8; 16], high: &[u8; 16]) -> Self::Bytes;

    /// Assembles 32 bytes from four little-endian words. The grids of the IQ types look up eight elements as one `u64`.
    ///
    /// AVX2, AVX-512: `vmovq`, `vpinsrq`, `vinserti128`, from memory where the words are table entries. NEON: `ins`.
    fn load_u64x4(self, x: [u64; 4]) -> Self::Bytes;

    /// Unpacks 32 codes of 4 bits: the low nibbles of `x` to bytes 0 to 15, the high nibbles to bytes 16 to 31. This is the
    /// order of ggml's 32-element blocks (Q4_0, IQ4_NL, MXFP4).
    ///
    /// AVX2, AVX-512: `vbroadcasti128`, `vpsrlvd` that shifts only the high half, `vpand`: three instructions without a
    /// lane-crossing shuffle. NEON: `and`, `ushr`.
    fn unpack_nibbles(self, x: &[u8; 16]) -> Self::Bytes;

    /// Unpacks 64 codes of 4 bits in storage order: low and high nibble of byte 0, of byte 1, and so on. The first vector
    /// holds the nibbles of bytes 0 to 15, the second the nibbles of bytes 16 to 31.
    ///
    /// AVX2, AVX-512: `vpmovzxbw` gives each byte 16 bits, a shifted copy is or-ed in, `vpand` keeps both nibbles.
    /// NEON: `and`, `ushr`, `zip1`, `zip2`.
    fn unpack_nibbles_interleaved(self, x: Self::Bytes) -> [Self::Bytes; 2];

    /// Transposes 4 × 4 matrices of 32-bit words: row `r` is `rows[r]`, of which each half of 16 bytes is a matrix of its
    /// own. Vector `w` of the result holds word `w` of the four rows' low halves, then of their high halves.
    ///
    /// The first step from columns of a stored matrix to rows. It stays within 128-bit lanes, as the unpack instructions
    /// do. AVX2, AVX-512: `vpunpck{l,h}dq`, then `vpunpck{l,h}qdq`. NEON: `trn1`, `trn2` of words, then of double words.
    fn transpose_u32(self, rows: [Self::Bytes; 4]) -> [Self::Bytes; 4];

    /// Transposes each half of 16 bytes as a 4 × 4 matrix of bytes: byte `4 * r + c` moves to `4 * c + r`.
    ///
    /// Together with two [`Simd::transpose_u32`] it transposes 16 × 16 bytes. AVX2, AVX-512: `vpshufb`; NEON: `tbl`.
    fn transpose_u8(self, x: Self::Bytes) -> Self::Bytes;

    /// Like [`Simd::unpack_nibbles`], eight bytes at a time: the low nibbles of bytes 0 to 7, their high nibbles, then the
    /// same for bytes 8 to 15. This is the order of NVFP4, whose groups have 16 elements in 8 bytes.
    ///
    /// AVX2, AVX-512: `vpermq`, `vpsrlvq`, `vpand`. NEON: `and`, `ushr`, `zip1`, `zip2` of double words.
    fn unpack_nibbles_per_8(self, x: &[u8; 16]) -> Self::Bytes;

    /// Unpacks 32 codes of 2 bits in storage order, lowest bits first. The second and fourth code of each byte are left
    /// shifted by two: a byte of the result holds its code in bits 0 and 1 (even positions) or in bits 2 and 3 (odd
    /// positions), other bits are zero.
    ///
    /// Shifting odd positions down would cost an instruction that a lookup table makes unnecessary: Q2_0's table has its
    /// values at 0 to 3 and again at 0, 4, 8 and 12. AVX2, AVX-512: `vpbroadcastq`, `vpshufb`, `vpsrlw`, `vpblendw`,
    /// `vpand`. NEON: `dup`, `tbl`, `ushl` by a vector, `and`.
    fn unpack_bit_pairs(self, x: &[u8; 8]) -> Self::Bytes;

    /// Returns the bytes as an array, a plain store: `vmovdqu`; NEON two `st1`.
    fn to_u8_array(self, x: Self::Bytes) -> [u8; 32];

    /// Sets all 32 bytes to `x`: `vpbroadcastb`, or a constant in memory; NEON `dup`.
    fn splat_u8(self, x: u8) -> Self::Bytes;

    /// Bitwise and: `vpand`; NEON `and`.
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// Bitwise or: `vpor`; NEON `orr`. Joins the parts of a code that is stored in two places.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// `a + b` per byte, modulo 256: `vpaddb`; NEON `add`.
    fn add_u8(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// `a - b` per byte, modulo 256: `vpsubb`; NEON `sub`. Makes unsigned codes signed by taking their offset away, exactly.
    fn sub_u8(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// Shifts right each pair of bytes, taken as one little-endian 16-bit number. Bits of the upper byte enter the lower
    /// one, so callers mask the result, or use a lookup that ignores the upper bits.
    ///
    /// x86 has no shift of single bytes; a 16-bit shift and a mask replace it. AVX2, AVX-512: `vpsrlw`; NEON: `ushl` by a
    /// negative count.
    fn shr_u16(self, x: Self::Bytes, by: u32) -> Self::Bytes;

    /// Like [`Simd::shr_u16`], to the left: bits of the lower byte enter the upper one. `vpsllw`; NEON `ushl`.
    fn shl_u16(self, x: Self::Bytes, by: u32) -> Self::Bytes;

    /// Keeps byte `i` if bit `i` of `bits` is set, and zeroes it otherwise. Spreads stored single bits, such as Q5_0's fifth
    /// bits, over 32 codes.
    ///
    /// AVX-512: `kmovd`, zero-masked `vmovdqu8`. AVX2 and NEON have no mask registers: each byte gets the byte of `bits`
    /// that has its bit (`vpshufb`; `tbl`), is compared with that bit, and masks `x` (`vpcmpeqb`, `vpand`; `cmtst`, `and`).
    fn select_or_zero(self, bits: u32, x: Self::Bytes) -> Self::Bytes;

    /// Negates byte `i`, as a signed byte, if bit `i` of `bits` is set. Applies the sign bits of the IQ types.
    ///
    /// AVX-512: masked `vpsubb` from zero. AVX2, NEON: with a mask `m` of zeros and ones as in [`Simd::select_or_zero`],
    /// `(x ^ m) - m`.
    fn negate_where(self, bits: u32, x: Self::Bytes) -> Self::Bytes;

    /// Sets all bits of byte `i` if it is greater, unsigned, than `limit`, and clears it otherwise. `limit` is below 255.
    ///
    /// AVX-512: `vpcmpub`, `vpmovm2b`. AVX2 compares bytes only as signed numbers, so `x > limit` is computed as
    /// `max(x, limit + 1) == x` (`vpmaxub`, `vpcmpeqb`). NEON: `cmhi`.
    fn gt_u8(self, x: Self::Bytes, limit: u8) -> Self::Bytes;

    /// Converts 32 unsigned bytes to F32, exactly: bytes 0 to 15, then 16 to 31.
    ///
    /// AVX2, AVX-512: `vpmovzxbd`, `vcvtdq2ps`. NEON: `ushll` twice, `ucvtf`.
    fn u8_to_f32(self, x: Self::Bytes) -> [Self::Floats; 2];

    /// Converts 32 signed bytes to F32, exactly: bytes 0 to 15, then 16 to 31.
    ///
    /// AVX2, AVX-512: `vpmovsxbd`, `vcvtdq2ps`. NEON: `sshll` twice, `scvtf`.
    fn i8_to_f32(self, x: Self::Bytes) -> [Self::Floats; 2];

    // output

    /// Stores 32 values as little-endian F32.
    fn store_f32(self, x: [Self::Floats; 2], out: &mut [[u8; 4]; 32]);

    /// Rounds 32 values to F16, to nearest even, and stores them. A NaN keeps its sign and becomes the quiet NaN without
    /// payload, as the reference gives it.
    ///
    /// AVX2, AVX-512: `vcvtps2ph`, which copies the upper payload bits of a NaN; they are cleared before. NEON: `fcvtn`,
    /// and the payload is cleared afterwards.
    fn store_f16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);

    /// Like [`Simd::store_f16`], for values without NaN: the conversion instruction alone.
    fn store_f16_normal(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);

    /// Rounds 32 values to BF16, to nearest even, and stores them. Every NaN becomes 0x7fc0, as in PyTorch.
    ///
    /// In integer arithmetic on the bits: add 0x7fff and the lowest bit that is kept, keep the upper half. AVX2 packs the
    /// halves with `vpackusdw` and `vpermq`, AVX-512 with one `vpermt2w`, NEON with `addhn`, which adds and keeps the
    /// upper half in one instruction. NaNs are replaced by a blend.
    fn store_bf16(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);

    /// Like [`Simd::store_bf16`], for values that are neither subnormal nor NaN (zero and infinity are allowed).
    ///
    /// `Avx512Bf16` rounds 32 values with one `vcvtne2ps2bf16`, which flushes subnormals to zero and keeps a NaN's
    /// payload; both would be wrong otherwise. The other tokens leave out the blend. The gain is 1.2 to 1.6 times
    /// (experiment 13).
    fn store_bf16_normal(self, x: [Self::Floats; 2], out: &mut [[u8; 2]; 32]);

    // lookup tables: a code of 4 bits has 16 possible results per scale, so the results are computed and rounded once and
    // each code selects one by a permutation (experiment 12)

    /// Makes two lookup tables of F16, rounded as by [`Simd::store_f16`].
    ///
    /// AVX-512 keeps both tables in one register. AVX2 and NEON look up bytes, so they split the entries into a table of
    /// low bytes and one of high bytes.
    fn tables_f16(self, tables: [Self::Floats; 2]) -> Self::Tables16;

    /// Makes two lookup tables of F16, rounded as by [`Simd::store_f16_normal`].
    fn tables_f16_normal(self, tables: [Self::Floats; 2]) -> Self::Tables16;

    /// Makes two lookup tables of BF16, rounded as by [`Simd::store_bf16`].
    fn tables_bf16(self, tables: [Self::Floats; 2]) -> Self::Tables16;

    /// Makes two lookup tables of BF16, rounded as by [`Simd::store_bf16_normal`].
    fn tables_bf16_normal(self, tables: [Self::Floats; 2]) -> Self::Tables16;

    /// Stores, for each of 32 codes, the entry at its low four bits: of the first table for codes 0 to 15, of the second
    /// table for codes 16 to 31. The upper bits of a code are ignored.
    ///
    /// AVX-512: `vpermps`, 16 lookups each. AVX2 has `vpermps` of 8 entries, so it looks up in both halves of the table and
    /// selects by bit 3 (`vblendvps`). NEON: `tbl` on four tables of single bytes, then `zip`.
    fn lookup_f32(self, tables: [Self::Floats; 2], codes: Self::Bytes, out: &mut [[u8; 4]; 32]);

    /// Like [`Simd::lookup_f32`] with 16-bit entries: codes 0 to 15 use table `which[0]`, codes 16 to 31 table `which[1]`.
    ///
    /// AVX-512: `vpermw` over 32 entries, the number of the table being bit 4 of the index. AVX2: `vpshufb` on low and on
    /// high bytes, then `vpunpck{l,h}bw`. NEON: `tbl` twice, then `zip1`, `zip2`.
    fn lookup_16(
        self,
        tables: Self::Tables16,
        which: [usize; 2],
        codes: Self::Bytes,
        out: &mut [[u8; 2]; 32],
    );

    /// Like [`Simd::lookup_f32`] with one table, times `factors[0]` for codes 0 to 15 and `factors[1]` for the rest.
    ///
    /// For groups of 16 elements, where a scaled table would be used for one lookup only. AVX-512 looks up first and
    /// multiplies afterwards (see `simd/avx512.rs`); the result is the same, since each entry is multiplied by the same factor.
    #[inline(always)]
    fn lookup_scaled_f32(
        self,
        table: Self::Floats,
        factors: [f32; 2],
        codes: Self::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        let [first, second] = [self.splat(factors[0]), self.splat(factors[1])];
        self.lookup_f32(
            [self.mul(table, first), self.mul(table, second)],
            codes,
            out,
        );
    }

    /// [`Simd::lookup_f32`] of one table with the codes of [`Simd::unpack_nibbles`].
    ///
    /// AVX-512 widens the packed bytes and lets `vpermps` ignore the upper bits: no mask and no unpacking.
    #[inline(always)]
    fn lookup_nibbles_f32(self, table: Self::Floats, codes: &[u8; 16], out: &mut [[u8; 4]; 32]) {
        self.lookup_f32([table; 2], self.unpack_nibbles(codes), out);
    }

    /// [`Simd::lookup_16`] of one table with the codes of [`Simd::unpack_nibbles`].
    ///
    /// AVX-512 widens the packed bytes to 16 bits, shifts, and lets `vpermw` on 16 entries ignore the upper bits: 1.03 to
    /// 1.2 times faster for Q4_0 (experiment 47).
    #[inline(always)]
    fn lookup_nibbles_16(
        self,
        tables: Self::Tables16,
        which: usize,
        codes: &[u8; 16],
        out: &mut [[u8; 2]; 32],
    ) {
        self.lookup_16(tables, [which; 2], self.unpack_nibbles(codes), out);
    }
}
