//! The common part of the IQ types: elements are looked up eight at a time, as entries of a grid.
//!
//! A grid is a published list of points, each of eight (or four) small integers. A code is an index into it, and magnitudes
//! and signs are stored apart. 32 elements are four entries of eight bytes, put into one vector, given their signs, widened
//! and scaled.
//!
//! Scalar and vector work alternate here, and LLVM merges scalar table lookups into gather instructions where it can, which
//! are half as fast (experiment 16), or scalar scales into shuffles. [`opaque`] prevents both.

use super::{OutputElement, Simd, tables};

/// Defines a kernel for blocks of `$bytes` bytes and 256 elements that begin with their scale `d`, an F16. `$groups` decodes
/// one block: `fn groups<S, O, const ASSUME_NORMAL: bool>(simd: S, d: f32, block: &[u8; $bytes], out: &mut [O::Stored; 256])`.
macro_rules! grid_kernel {
    ($bytes:literal, $groups:ident) => {
        $crate::isa::kernel!(decode);

        #[inline(always)]
        fn decode<S: $crate::Simd, O: $crate::OutputElement>(
            simd: S,
            blocks: &[u8],
            out: &mut [u8],
        ) {
            let (blocks, _) = blocks.as_chunks::<$bytes>();
            let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
            for (block, out) in blocks.iter().zip(out) {
                let d = $crate::half::from_f16(*$crate::field::field(block, 0));
                if O::IS_ROUNDED && !d.is_finite() {
                    $groups::<S, O, false>(simd, d, block, out);
                } else {
                    $groups::<S, O, true>(simd, d, block, out);
                }
            }
        }
    };
}
pub(crate) use grid_kernel;

/// Unpacks the scales of IQ2_XS and IQ2_S: `d * (0.5 + scale) * 0.25`, in this order of operations. The first array has the
/// scales of the low nibbles, the second the scales of the high ones; only the first eight of each are used.
#[inline(always)]
pub(crate) fn iq2_scales<S: Simd>(simd: S, d: f32, scales: &[u8; 8]) -> [[f32; 16]; 2] {
    let mut padded = [0; 16];
    padded[..8].copy_from_slice(scales);
    let [low, high] = simd.u8_to_f32(simd.unpack_nibbles(&padded));
    opaque([
        simd.to_f32_array(scale_quarters(simd, d, low)),
        simd.to_f32_array(scale_quarters(simd, d, high)),
    ])
}

#[inline(always)]
fn scale_quarters<S: Simd>(simd: S, d: f32, scales: S::Floats) -> S::Floats {
    simd.mul(
        simd.mul(simd.splat(d), simd.add(simd.splat(0.5), scales)),
        simd.splat(0.25),
    )
}

/// Completes the signs of 32 elements. A word stores four times seven signs (bits 0 to 27); the eighth sign of each byte is
/// the parity of its seven, so that the number of minuses is even. ggml looks the byte up (`ksigns_iq2xs`); here the
/// parities of all four bytes are computed at once by folding halves.
#[inline(always)]
pub(crate) fn complete_signs(word: u32) -> u32 {
    let sevens = word & 0x7f | word << 1 & 0x7f00 | word << 2 & 0x7f_0000 | word << 3 & 0x7f00_0000;
    // the parity of seven bits in three steps, for four bytes at once: each step folds the upper half of what is left
    // onto the lower half, and the masks keep bits of the next byte out
    let fours = sevens ^ sevens >> 4 & 0x0f0f_0f0f;
    let twos = fours ^ fours >> 2 & 0x0303_0303;
    sevens | ((twos ^ twos >> 1) & 0x0101_0101) << 7
}

/// The lower half of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half is discarded on purpose"
)]
pub(crate) fn low_u32(word: u64) -> u32 {
    word as u32
}

/// The 16 bits of `word` from bit `at` on, as an index that the caller masks.
///
/// Indices taken from one word by shifts stay scalar; indices in an array would become a gather (experiment 16).
#[inline(always)]
pub(crate) fn index_at(word: u64, at: u32) -> usize {
    usize::from(u16::from_le_bytes(
        *(word >> at)
            .to_le_bytes()
            .first_chunk()
            .expect("a u64 has eight bytes"),
    ))
}

/// Joins two grid entries of four elements. Opaque, since the compiler otherwise gathers the entries (experiment 16).
#[inline(always)]
pub(crate) fn join_entries(low: u32, high: u32) -> u64 {
    opaque(u64::from(low) | u64::from(high) << 32)
}

/// Hides from the compiler how a value was computed.
///
/// For scales and signs that a vectorised loop computes and unrolled code reads one by one: from memory, not by shuffles
/// (experiment 15). Unlike [`force_memory_operand`](crate::batch::force_memory_operand) this takes the value, so that
/// constant indices into it remain constant offsets.
#[inline(always)]
pub(crate) fn opaque<T>(value: T) -> T {
    std::hint::black_box(value)
}

/// Stores the magnitudes `entries`, negated where their bit in `signs` is set, times the scale of each half of 16.
#[inline(always)]
pub(crate) fn store_signed<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    scales: [f32; 2],
    entries: [u64; 4],
    signs: u32,
    out: &mut [O::Stored; 32],
) {
    // signs are applied to the bytes, before they are widened: 32 bytes are one register, 32 floats two or four
    let codes = simd.negate_where(signs, simd.load_u64x4(entries));
    store_scaled::<S, O, ASSUME_NORMAL>(simd, scales, codes, out);
}

/// Stores signed bytes times the scale of each half of 16.
#[inline(always)]
pub(crate) fn store_scaled<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    scales: [f32; 2],
    codes: S::Bytes,
    out: &mut [O::Stored; 32],
) {
    let [low, high] = simd.i8_to_f32(codes);
    O::store::<S, ASSUME_NORMAL>(
        simd,
        [
            simd.mul(simd.splat(scales[0]), low),
            simd.mul(simd.splat(scales[1]), high),
        ],
        out,
    );
}

/// The grid of IQ1_S and IQ1_M in eighths, less one: `8 * entry - 1`. The types shift each entry by plus or minus an eighth;
/// adding 2 to a byte makes minus into plus, so a shifted entry is exact in a byte.
pub(crate) static IQ1_EIGHTHS: [u64; 2048] = {
    let mut eighths = tables::IQ1;
    let mut i = 0;
    while i < eighths.len() {
        let mut bytes = eighths[i].to_le_bytes();
        let mut j = 0;
        while j < 8 {
            // -9, -1 or 7: a signed byte holds these, and what adding 2 makes of them
            bytes[j] = (bytes[j] << 3).wrapping_sub(1);
            j += 1;
        }
        eighths[i] = u64::from_le_bytes(bytes);
        i += 1;
    }
    eighths
};
