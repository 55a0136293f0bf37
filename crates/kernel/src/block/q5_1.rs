//! Q5_1: 32 codes of 5 bits, scale and minimum. `d (f16) | m (f16) | qh (u32) | qs[16]`; low nibbles
//! first, bit `i` of `qh` is the fifth bit of code `i`.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q5_1);

#[inline(always)]
fn q5_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let mut pieces = batch::Pieces::<O, 24, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let (d, m) = (batch::scales(s, blocks, 0), batch::scales(s, blocks, 2));
        let finite = batch::finite(d.as_flattened()) & batch::finite(m.as_flattened());
        let (d, m) = (batch::in_memory(&d), batch::in_memory(&m));
        let again = batch::again(s, d).iter().zip(batch::again(s, m));
        for (((blocks, first), second), out) in
            blocks.iter().zip(d.iter().zip(m)).zip(again).zip(out)
        {
            if O::PARTICULAR && !finite {
                sixteen::<S, O, false>(s, blocks, first, second, out);
            } else {
                sixteen::<S, O, true>(s, blocks, first, second, out);
            }
        }
    }
}

#[inline(always)]
fn sixteen<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    blocks: &[[u8; 24]; 16],
    first: (&[f32; 16], &[f32; 16]),
    second: (&[f32; 16], &[f32; 16]),
    out: &mut [[O::Cell; 32]; 16],
) {
    for (i, (block, out)) in blocks.iter().zip(out).enumerate() {
        let fifth = s.keep(u32::from_le_bytes(*part(block, 4)), s.splat_byte(16));
        let codes = s.or(s.nibbles(part(block, 8)), fifth);
        let [low, high] = s.unsigned(codes);
        let low = s.add(s.mul(low, s.splat(first.0[i])), s.splat(first.1[i]));
        let high = s.add(s.mul(high, s.splat(second.0[i])), s.splat(second.1[i]));
        O::put::<S, PLAIN>(s, [low, high], out);
    }
}
