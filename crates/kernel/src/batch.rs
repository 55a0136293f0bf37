//! Small blocks, sixteen at a time: their scales are widened together, their tables made in pairs.

use super::block::part;
use super::{Element, Lanes};

/// What four bits stand for by themselves.
pub(crate) static CODES: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Blocks of `N` bytes and their `M` elements, sixteen at a time.
pub(crate) struct Sixteens<'b, O: Element, const N: usize, const M: usize> {
    blocks: &'b [[u8; N]],
    out: &'b mut [[O::Cell; M]],
    last: Option<Last<O::Cell, N, M>>,
}

/// Less than sixteen blocks, filled up with zeros, and room for what they become.
struct Last<C, const N: usize, const M: usize> {
    blocks: [[u8; N]; 16],
    out: [[C; M]; 16],
}

impl<'b, O: Element, const N: usize, const M: usize> Sixteens<'b, O, N, M> {
    #[inline(always)]
    pub(crate) fn new(blocks: &'b [u8], out: &'b mut [u8]) -> Self {
        Self { blocks: blocks.as_chunks().0, out: O::cells(out).as_chunks_mut().0, last: None }
    }

    /// The next ones, to be decoded before more are asked for.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub(crate) fn more(&mut self) -> Option<(&[[u8; N]; 16], &mut [[O::Cell; M]; 16])> {
        if let Some((now, later)) = self.blocks.split_first_chunk() {
            let (out, behind) = std::mem::take(&mut self.out).split_first_chunk_mut().expect("as many as blocks");
            (self.blocks, self.out) = (later, behind);
            return Some((now, out));
        }
        if self.blocks.is_empty() {
            if let Some(last) = &self.last {
                self.out.copy_from_slice(&last.out[..self.out.len()]);
            }
            return None;
        }
        let last = self.last.insert(Last { blocks: [[0; N]; 16], out: [[O::cell(0.0); M]; 16] });
        last.blocks[..self.blocks.len()].copy_from_slice(self.blocks);
        self.blocks = &[];
        Some((&last.blocks, &mut last.out))
    }
}

/// The F16 at `at` of each block.
#[inline(always)]
pub(crate) fn scales<S: Lanes, const N: usize>(s: S, blocks: &[[u8; N]; 16], at: usize) -> [f32; 16] {
    let mut halves = [[0; 2]; 16];
    for (half, block) in halves.iter_mut().zip(blocks) {
        *half = *part(block, at);
    }
    s.array(s.widen_f16(&halves))
}

/// Numbers that a loop reads from memory one by one, whence each spreads over a register by its load alone: the
/// compiler cannot see their number, unroll the loop and bring them by shuffles.
#[inline(always)]
pub(crate) fn in_memory<T>(numbers: &[T]) -> &[T] {
    std::hint::black_box(numbers)
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
    d: &[f32],
    m: &[f32],
    out: &mut [[O::Cell; 32]; 16],
) {
    let d = d.as_chunks::<2>().0;
    let mut m = m.as_chunks::<2>().0.iter();
    for ((blocks, out), d) in blocks.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0).zip(d) {
        let (mut first, mut second) = (s.mul(values, s.splat(d[0])), s.mul(values, s.splat(d[1])));
        if let Some(m) = m.next() {
            (first, second) = (s.add(first, s.splat(m[0])), s.add(second, s.splat(m[1])));
        }
        let tables = O::tables::<S, PLAIN>(s, [first, second]);
        O::pick(s, tables, [0; 2], s.nibbles(part(&blocks[0], at)), &mut out[0]);
        O::pick(s, tables, [1; 2], s.nibbles(part(&blocks[1], at)), &mut out[1]);
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
