//! Blocks by the piece: their scales are widened together, their tables made in pairs.

use std::iter::Zip;
use std::slice::{Chunks, ChunksMut};

use super::block::part;
use super::{Element, Lanes, each};

/// What four bits stand for by themselves.
pub(crate) static CODES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// Sixteens of blocks whose scales are widened before any of these blocks is decoded. From a block to the first product a
/// scale takes some fifty cycles, and a core looks ahead some ten blocks: with sixteen at a time it waits for them each time.
pub(crate) const MOST: usize = 4;

/// Blocks of `N` bytes and their `M` elements in sixteens, at most [`MOST`] of them at a time.
pub(crate) struct Pieces<'b, O: Element, const N: usize, const M: usize> {
    blocks: &'b [[[u8; N]; 16]],
    out: &'b mut [[[O::Cell; M]; 16]],
    rest: (&'b [[u8; N]], &'b mut [[O::Cell; M]]),
    last: Option<Last<O::Cell, N, M>>,
}

/// Less than sixteen blocks, filled up with zeros, and room for what they become.
struct Last<C, const N: usize, const M: usize> {
    blocks: [[[u8; N]; 16]; 1],
    out: [[[C; M]; 16]; 1],
}

impl<'b, O: Element, const N: usize, const M: usize> Pieces<'b, O, N, M> {
    #[inline(always)]
    pub(crate) fn new(blocks: &'b [u8], out: &'b mut [u8]) -> Self {
        let (blocks, few) = blocks.as_chunks::<N>().0.as_chunks();
        let (out, few_out) = O::cells(out).as_chunks_mut::<M>().0.as_chunks_mut();
        Self {
            blocks,
            out,
            rest: (few, few_out),
            last: None,
        }
    }

    /// The next ones, to be decoded before more are asked for.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub(crate) fn more(&mut self) -> Option<(&[[[u8; N]; 16]], &mut [[[O::Cell; M]; 16]])> {
        if !self.blocks.is_empty() {
            let count = self.blocks.len().min(MOST);
            let (now, later) = self.blocks.split_at(count);
            let (out, behind) = std::mem::take(&mut self.out).split_at_mut(count);
            (self.blocks, self.out) = (later, behind);
            return Some((now, out));
        }
        let (blocks, out) = &mut self.rest;
        if blocks.is_empty() {
            if let Some(last) = &self.last {
                out.copy_from_slice(&last.out[0][..out.len()]);
            }
            return None;
        }
        let last = self.last.insert(Last {
            blocks: [[[0; N]; 16]],
            out: [[[O::cell(0.0); M]; 16]],
        });
        last.blocks[0][..blocks.len()].copy_from_slice(blocks);
        *blocks = &[];
        Some((&last.blocks, &mut last.out))
    }
}

/// Blocks of `N` bytes with 256 elements, eight at a time: their scales come first, for the same reason.
#[inline(always)]
#[allow(clippy::type_complexity)]
pub(crate) fn eights<'b, O: Element, const N: usize>(
    blocks: &'b [u8],
    out: &'b mut [u8],
) -> Zip<Chunks<'b, [u8; N]>, ChunksMut<'b, [O::Cell; 256]>> {
    blocks
        .as_chunks()
        .0
        .chunks(8)
        .zip(O::cells(out).as_chunks_mut().0.chunks_mut(8))
}

/// The F16 at `at` of each of a piece's blocks.
#[inline(always)]
pub(crate) fn scales<S: Lanes, const N: usize>(
    s: S,
    blocks: &[[[u8; N]; 16]],
    at: usize,
) -> [[f32; 16]; MOST] {
    let mut scales = [[0.0; 16]; MOST];
    for (scales, blocks) in scales.iter_mut().zip(blocks) {
        *scales = sixteen_scales(s, blocks, at);
    }
    scales
}

#[inline(always)]
fn sixteen_scales<S: Lanes, const N: usize>(s: S, blocks: &[[u8; N]; 16], at: usize) -> [f32; 16] {
    // four blocks' in one window of 64 bytes, which ends before the blocks do
    if N.is_multiple_of(2) && 3 * N + 2 <= 64 && 4 * N >= at + 64 {
        let windows = each!(i in [0, 4, 8, 12] => part(blocks.as_flattened(), i * N + at));
        let apart = u16::try_from(N / 2).expect("less than a window");
        return s.array(s.widen_f16_apart(windows, apart));
    }
    let mut halves = [[0; 2]; 16];
    for (half, block) in halves.iter_mut().zip(blocks) {
        *half = *part(block, at);
    }
    s.array(s.widen_f16(&halves))
}

/// Numbers that a loop reads from memory one by one, whence each spreads over a register by its load alone: the compiler
/// cannot see what they are, and bring them by shuffles.
#[inline(always)]
pub(crate) fn in_memory<T>(numbers: &[T]) -> &[T] {
    std::hint::black_box(numbers)
}

/// The same numbers for their second use: read again as part of an operation, where there is such a thing, which is quicker
/// than spreading each once for both uses, by an instruction of its own.
#[inline(always)]
pub(crate) fn again<S: Lanes, T>(_: S, numbers: &[T]) -> &[T] {
    if S::SPREADS {
        in_memory(numbers)
    } else {
        numbers
    }
}

/// Whether none is infinite or NaN.
#[inline(always)]
pub(crate) fn finite(scales: &[f32]) -> bool {
    let mut all = true;
    for scale in scales {
        all &= scale.is_finite();
    }
    all
}

/// Blocks with sixteen bytes of codes at `at`, whose nibbles choose among what the values become: times the block's `d`,
/// plus its `m` if there are any.
#[inline(always)]
pub(crate) fn nibbles<S: Lanes, O: Element, const PLAIN: bool, const N: usize>(
    s: S,
    blocks: &[[u8; N]; 16],
    at: usize,
    values: S::Floats,
    d: &[f32; 16],
    m: Option<&[f32; 16]>,
    out: &mut [[O::Cell; 32]; 16],
) {
    let d = d.as_chunks::<2>().0;
    let pairs = blocks
        .as_chunks::<2>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<2>().0)
        .zip(d);
    for (i, ((blocks, out), d)) in pairs.enumerate() {
        let (mut first, mut second) = (s.mul(values, s.splat(d[0])), s.mul(values, s.splat(d[1])));
        if let Some(m) = m {
            (first, second) = (
                s.add(first, s.splat(m[2 * i])),
                s.add(second, s.splat(m[2 * i + 1])),
            );
        }
        let tables = O::tables::<S, PLAIN>(s, [first, second]);
        O::pick_nibbles(s, tables, 0, part(&blocks[0], at), &mut out[0]);
        O::pick_nibbles(s, tables, 1, part(&blocks[1], at), &mut out[1]);
    }
}

/// Two F16.
#[inline(always)]
pub(crate) fn two_halves<S: Lanes>(s: S, halves: &[u8; 4]) -> [f32; 2] {
    let mut padded = [[0; 2]; 16];
    padded[..2].copy_from_slice(halves.as_chunks().0);
    let [first, second, ..] = s.array(s.widen_f16(&padded));
    [first, second]
}

/// `d` times each of sixteen signed bytes.
#[inline(always)]
pub(crate) fn signed_scales<S: Lanes>(s: S, d: f32, scales: S::Bytes) -> [f32; 16] {
    s.array(s.mul(s.splat(d), s.signed(scales)[0]))
}
