//! Q5_1: 32 codes of 5 bits, scale and minimum. `d (f16) | m (f16) | qh (u32) | qs[16]`; low nibbles
//! first, bit `i` of `qh` is the fifth bit of code `i`.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q5_1);

#[inline(always)]
fn q5_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let mut batches = batch::Sixteens::<O, 24, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.more() {
        let (d, m) = (batch::scales(s, blocks, 0), batch::scales(s, blocks, 2));
        let finite = batch::finite(&d) & batch::finite(&m);
        let (d, m) = (batch::in_memory(&d), batch::in_memory(&m));
        if O::PARTICULAR && !finite {
            sixteen::<S, O, false>(s, blocks, d, m, out);
        } else {
            sixteen::<S, O, true>(s, blocks, d, m, out);
        }
    }
}

#[inline(always)]
fn sixteen<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    blocks: &[[u8; 24]; 16],
    d: &[f32],
    m: &[f32],
    out: &mut [[O::Cell; 32]; 16],
) {
    for (((block, d), m), out) in blocks.iter().zip(d).zip(m).zip(out) {
        let fifth = s.keep(u32::from_le_bytes(*part(block, 4)), s.splat_byte(16));
        let codes = s.or(s.nibbles(part(block, 8)), fifth);
        let (d, m) = (s.splat(*d), s.splat(*m));
        let [low, high] = s.unsigned(codes);
        O::put::<S, PLAIN>(s, [s.add(s.mul(low, d), m), s.add(s.mul(high, d), m)], out);
    }
}
