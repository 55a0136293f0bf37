//! Q8_0: 32 codes of 8 bits, one scale. `d (f16) | qs[32]`.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q8_0);

#[inline(always)]
fn q8_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    scaled::<S, O, 34, 2>(s, blocks, out);
}

/// Blocks of so many bytes that begin with their scale, and whose codes begin at `CODES`.
#[inline(always)]
pub(super) fn scaled<S: Lanes, O: Element, const BYTES: usize, const CODES: usize>(
    s: S,
    blocks: &[u8],
    out: &mut [u8],
) {
    let mut pieces = batch::Pieces::<O, BYTES, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(d.as_flattened()), batch::in_memory(&d));
        for (((blocks, first), second), out) in
            blocks.iter().zip(d).zip(batch::again(s, d)).zip(out)
        {
            if O::PARTICULAR && !finite {
                sixteen::<S, O, false, BYTES, CODES>(s, blocks, [first, second], out);
            } else {
                sixteen::<S, O, true, BYTES, CODES>(s, blocks, [first, second], out);
            }
        }
    }
}

#[inline(always)]
fn sixteen<S: Lanes, O: Element, const PLAIN: bool, const BYTES: usize, const CODES: usize>(
    s: S,
    blocks: &[[u8; BYTES]; 16],
    d: [&[f32; 16]; 2],
    out: &mut [[O::Cell; 32]; 16],
) {
    for (((block, first), second), out) in blocks.iter().zip(d[0]).zip(d[1]).zip(out) {
        let [low, high] = s.signed(s.bytes(part(block, CODES)));
        O::put::<S, PLAIN>(
            s,
            [s.mul(low, s.splat(*first)), s.mul(high, s.splat(*second))],
            out,
        );
    }
}
