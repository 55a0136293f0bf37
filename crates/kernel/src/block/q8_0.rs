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
    let mut batches = batch::Sixteens::<O, BYTES, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(&d), batch::in_memory(&d));
        if O::PARTICULAR && !finite {
            sixteen::<S, O, false, BYTES, CODES>(s, blocks, d, out);
        } else {
            sixteen::<S, O, true, BYTES, CODES>(s, blocks, d, out);
        }
    }
}

#[inline(always)]
fn sixteen<S: Lanes, O: Element, const PLAIN: bool, const BYTES: usize, const CODES: usize>(
    s: S,
    blocks: &[[u8; BYTES]; 16],
    d: &[f32],
    out: &mut [[O::Cell; 32]; 16],
) {
    for ((block, d), out) in blocks.iter().zip(d).zip(out) {
        let d = s.splat(*d);
        let [low, high] = s.signed(s.bytes(part(block, CODES)));
        O::put::<S, PLAIN>(s, [s.mul(low, d), s.mul(high, d)], out);
    }
}
