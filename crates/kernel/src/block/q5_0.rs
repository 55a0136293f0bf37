//! Q5_0: 32 codes of 5 bits around 16, one scale. `d (f16) | qh (u32) | qs[16]`; low nibbles first,
//! bit `i` of `qh` is the fifth bit of code `i`.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q5_0);

#[inline(always)]
fn q5_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let mut pieces = batch::Pieces::<O, 22, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(d.as_flattened()), batch::in_memory(&d));
        for (((blocks, first), second), out) in
            blocks.iter().zip(d).zip(batch::again(s, d)).zip(out)
        {
            if O::PARTICULAR && !finite {
                sixteen::<S, O, false>(s, blocks, [first, second], out);
            } else {
                sixteen::<S, O, true>(s, blocks, [first, second], out);
            }
        }
    }
}

#[inline(always)]
fn sixteen<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    blocks: &[[u8; 22]; 16],
    d: [&[f32; 16]; 2],
    out: &mut [[O::Cell; 32]; 16],
) {
    for (((block, first), second), out) in blocks.iter().zip(d[0]).zip(d[1]).zip(out) {
        // a fifth bit that is missing is -16
        let fifth = s.keep(!u32::from_le_bytes(*part(block, 2)), s.splat_byte(0xf0));
        let codes = s.or(s.nibbles(part(block, 6)), fifth);
        let [low, high] = s.signed(codes);
        O::put::<S, PLAIN>(
            s,
            [s.mul(low, s.splat(*first)), s.mul(high, s.splat(*second))],
            out,
        );
    }
}
