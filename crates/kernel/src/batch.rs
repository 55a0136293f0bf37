//! Decoding small blocks in batches, and helpers that several block types share.
//!
//! From a block's F16 scale to the first product there are about fifty cycles of latency (load, permutation, conversion,
//! check, store, reload), and an out-of-order core looks only some ten blocks ahead. Decoded block by block, the products
//! wait for their scales. So the scales of a batch of blocks are widened first, and then the blocks are decoded: 1.1 to
//! 1.6 times faster with AVX-512 (experiments 14 and 47).

use std::iter::Zip;
use std::slice::{Chunks, ChunksMut};

use super::field::field;
use super::{OutputElement, Simd};
use crate::unroll::unroll;

/// The values of 4-bit codes that stand for themselves.
pub(crate) static CODE_VALUES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// Vectors of 16 scales per batch, hence 64 blocks. With one vector the core still waited for each (experiment 47).
pub(crate) const BATCH: usize = 4;

/// Splits blocks of `N` bytes and their output of `M` elements each into batches of up to [`BATCH`] × 16 blocks.
///
/// An iterator by hand, since a batch borrows from `self`, and instead of a function with a closure, since a closure must
/// not hold SIMD operations (see [`crate::isa::kernel`]).
pub(crate) struct Batches<'b, O: OutputElement, const N: usize, const M: usize> {
    blocks: &'b [[[u8; N]; 16]],
    out: &'b mut [[[O::Stored; M]; 16]],
    rest: (&'b [[u8; N]], &'b mut [[O::Stored; M]]),
    padded: Option<PaddedTail<O::Stored, N, M>>,
}

/// The last blocks, fewer than 16, padded with zeros to 16, and their output. Padding keeps the loop over 16 blocks free of
/// a second, variable length, for which the compiler would emit the whole body again (experiment 14).
struct PaddedTail<C, const N: usize, const M: usize> {
    blocks: [[[u8; N]; 16]; 1],
    out: [[[C; M]; 16]; 1],
}

impl<'b, O: OutputElement, const N: usize, const M: usize> Batches<'b, O, N, M> {
    #[inline(always)]
    pub(crate) fn new(blocks: &'b [u8], out: &'b mut [u8]) -> Self {
        let (blocks, rest) = blocks.as_chunks::<N>().0.as_chunks();
        let (out, rest_out) = O::as_stored(out).as_chunks_mut::<M>().0.as_chunks_mut();
        Self {
            blocks,
            out,
            rest: (rest, rest_out),
            padded: None,
        }
    }

    /// The next batch, which must be decoded before the next call: that call copies the padded tail's output.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub(crate) fn next_batch(&mut self) -> Option<(&[[[u8; N]; 16]], &mut [[[O::Stored; M]; 16]])> {
        if !self.blocks.is_empty() {
            let count = self.blocks.len().min(BATCH);
            let (now, later) = self.blocks.split_at(count);
            // taken out of `self`, since splitting the slice through `&mut self` would shorten its lifetime to this
            // call
            let (out, later_out) = std::mem::take(&mut self.out).split_at_mut(count);
            (self.blocks, self.out) = (later, later_out);
            return Some((now, out));
        }
        let (blocks, out) = &mut self.rest;
        if blocks.is_empty() {
            if let Some(padded) = &self.padded {
                out.copy_from_slice(&padded.out[0][..out.len()]);
            }
            return None;
        }
        let padded = self.padded.insert(PaddedTail {
            blocks: [[[0; N]; 16]],
            out: [[[O::round(0.0); M]; 16]],
        });
        padded.blocks[0][..blocks.len()].copy_from_slice(blocks);
        *blocks = &[];
        Some((&padded.blocks, &mut padded.out))
    }
}

/// Splits blocks of `N` bytes and 256 elements into batches of up to eight, whose scales are unpacked first: the same
/// latency as for small blocks, for 8 or 16 scales per block.
#[inline(always)]
#[allow(clippy::type_complexity)]
pub(crate) fn batches_of_8<'b, O: OutputElement, const N: usize>(
    blocks: &'b [u8],
    out: &'b mut [u8],
) -> Zip<Chunks<'b, [u8; N]>, ChunksMut<'b, [O::Stored; 256]>> {
    blocks
        .as_chunks()
        .0
        .chunks(8)
        .zip(O::as_stored(out).as_chunks_mut().0.chunks_mut(8))
}

/// Widens the F16 at `offset` of each block of a batch. Vectors beyond the batch's length are zero.
#[inline(always)]
pub(crate) fn widen_scales<S: Simd, const N: usize>(
    simd: S,
    blocks: &[[[u8; N]; 16]],
    offset: usize,
) -> [[f32; 16]; BATCH] {
    let mut scales = [[0.0; 16]; BATCH];
    for (scales, blocks) in scales.iter_mut().zip(blocks) {
        *scales = widen_16_scales(simd, blocks, offset);
    }
    scales
}

#[inline(always)]
fn widen_16_scales<S: Simd, const N: usize>(
    simd: S,
    blocks: &[[u8; N]; 16],
    offset: usize,
) -> [f32; 16] {
    // If the scales of four blocks lie in one window of 64 bytes at an even distance, and the last window ends within the
    // blocks, they are gathered by permutation. This holds for blocks of 18 and 20 bytes. The condition is constant.
    if N.is_multiple_of(2) && 3 * N + 2 <= 64 && 4 * N >= offset + 64 {
        let windows = unroll!(i in [0, 4, 8, 12] => field(blocks.as_flattened(), i * N + offset));
        let stride = u16::try_from(N / 2).expect("a block is shorter than a window");
        return simd.to_f32_array(simd.widen_f16_strided(windows, stride));
    }
    let mut halves = [[0; 2]; 16];
    for (half, block) in halves.iter_mut().zip(blocks) {
        *half = *field(block, offset);
    }
    simd.to_f32_array(simd.widen_f16(&halves))
}

/// Hides from the compiler what `numbers` hold, so that a loop over them loads each from memory.
///
/// A load broadcasts a number to all lanes for free. Where the compiler can tell that the numbers came from a register, it
/// shuffles them out of it instead, and the shuffle port is what widening and table lookups wait for already: Q4_K, Q6_K
/// and Q3_K are 1.1 to 1.3 times faster this way (experiment 15).
#[inline(always)]
pub(crate) fn force_memory_operand<T>(numbers: &[T]) -> &[T] {
    std::hint::black_box(numbers)
}

/// The same numbers for a second use in the same iteration.
///
/// With an embedded broadcast the multiplication itself reads the number from memory, so two reads cost less than one
/// broadcast into a register for both uses: Q8_0 1.04 to 1.17 times faster (experiment 47). The second slice must look
/// unrelated to the first, or the compiler merges the loads. Without embedded broadcast the slice is returned as it is.
#[inline(always)]
pub(crate) fn reload_operand<S: Simd, T>(_: S, numbers: &[T]) -> &[T] {
    if S::HAS_EMBEDDED_BROADCAST {
        force_memory_operand(numbers)
    } else {
        numbers
    }
}

/// Whether no scale is infinite or NaN. Without an early exit, so that the compiler vectorises the loop.
///
/// A product of a finite F16 and integers is a multiple of 2^-27, hence zero or far above F32's subnormals (experiment 13).
/// So for finite scales kernels may assume normal values (see [`OutputElement::IS_ROUNDED`]).
#[inline(always)]
pub(crate) fn all_finite(scales: &[f32]) -> bool {
    let mut all = true;
    for scale in scales {
        all &= scale.is_finite();
    }
    all
}

/// Decodes 16 blocks that have 16 bytes of 4-bit codes at `offset`: each code selects one of 16 `values`, which is
/// multiplied by the block's `scales` entry and, if there are `minima`, increased by the block's entry of those.
///
/// The 16 results of a block are computed and rounded once and looked up 32 times (experiment 12). Two blocks share a pair
/// of tables, since 32 values are rounded to 16 bits by one instruction.
#[inline(always)]
pub(crate) fn lookup_nibble_blocks<
    S: Simd,
    O: OutputElement,
    const ASSUME_NORMAL: bool,
    const N: usize,
>(
    simd: S,
    blocks: &[[u8; N]; 16],
    offset: usize,
    values: S::Floats,
    scales: &[f32; 16],
    minima: Option<&[f32; 16]>,
    out: &mut [[O::Stored; 32]; 16],
) {
    let scales = scales.as_chunks::<2>().0;
    let pairs = blocks
        .as_chunks::<2>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<2>().0)
        .zip(scales);
    for (i, ((blocks, out), d)) in pairs.enumerate() {
        // the product of an F16 and a code is exact in F32, so only the addition rounds (`block.rs`)
        let (mut first, mut second) = (
            simd.mul(values, simd.splat(d[0])),
            simd.mul(values, simd.splat(d[1])),
        );
        if let Some(m) = minima {
            (first, second) = (
                simd.add(first, simd.splat(m[2 * i])),
                simd.add(second, simd.splat(m[2 * i + 1])),
            );
        }
        let tables = O::tables::<S, ASSUME_NORMAL>(simd, [first, second]);
        O::lookup_nibbles(simd, tables, 0, field(&blocks[0], offset), &mut out[0]);
        O::lookup_nibbles(simd, tables, 1, field(&blocks[1], offset), &mut out[1]);
    }
}

/// Widens two adjacent F16, the scale and the minimum of a K-type.
#[inline(always)]
pub(crate) fn widen_2_f16<S: Simd>(simd: S, halves: &[u8; 4]) -> [f32; 2] {
    let mut padded = [[0; 2]; 16];
    padded[..2].copy_from_slice(halves.as_chunks().0);
    let [first, second, ..] = simd.to_f32_array(simd.widen_f16(&padded));
    [first, second]
}

/// `d` times each of the first 16 signed bytes of `scales`.
#[inline(always)]
pub(crate) fn scale_i8<S: Simd>(simd: S, d: f32, scales: S::Bytes) -> [f32; 16] {
    simd.to_f32_array(simd.mul(simd.splat(d), simd.i8_to_f32(scales)[0]))
}
