//! Small blocks, sixteen at a time: their scales are widened together, their tables made in pairs.

use super::block::part;
use super::{Element, Lanes};

/// The F16 at `at` of each block; zeros where there are no more.
#[inline(always)]
pub(crate) fn scales<S: Lanes, const N: usize>(s: S, blocks: &[[u8; N]], at: usize) -> [f32; 16] {
    let mut halves = [[0; 2]; 16];
    for (half, block) in halves.iter_mut().zip(blocks) {
        *half = *part(block, at);
    }
    s.array(s.widen_f16(&halves))
}

/// Whether none is infinite or NaN.
#[inline(always)]
pub(crate) fn finite(scales: &[f32; 16]) -> bool {
    scales.iter().fold(true, |all, scale| all & scale.is_finite())
}

/// Blocks with sixteen bytes of codes at `at`, whose nibbles choose among the block's values.
#[inline(always)]
pub(crate) fn nibbles<S: Lanes, O: Element, const PLAIN: bool, const N: usize>(
    s: S,
    blocks: &[[u8; N]],
    at: usize,
    values: impl Fn(usize) -> S::Floats,
    out: &mut [[O::Cell; 32]],
) {
    let (pairs, rest) = blocks.as_chunks::<2>();
    let (outs, rest_out) = out.as_chunks_mut::<2>();
    for (i, ([first, second], [out0, out1])) in pairs.iter().zip(outs).enumerate() {
        let tables = O::tables::<S, PLAIN>(s, [values(2 * i), values(2 * i + 1)]);
        O::pick(s, tables, [0; 2], s.nibbles(part(first, at)), out0);
        O::pick(s, tables, [1; 2], s.nibbles(part(second, at)), out1);
    }
    for (block, out) in rest.iter().zip(rest_out) {
        let tables = O::tables::<S, PLAIN>(s, [values(blocks.len() - 1); 2]);
        O::pick(s, tables, [0; 2], s.nibbles(part(block, at)), out);
    }
}
