//! Q8_K: 256 codes of 8 bits, one scale. `d (f32) | qs[256] | bsums[16] (i16)`; the sums serve dot
//! products only.

use super::part;
use crate::{Element, Lanes, half, kernel};

kernel!(q8_k);

#[inline(always)]
fn q8_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<292>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = f32::from_le_bytes(*part(block, 0));
        if O::PARTICULAR && !d.is_normal() {
            codes::<S, O, false>(
                s,
                part(block, 4),
                if d.is_nan() { half::NAN } else { d },
                out,
            );
        } else {
            codes::<S, O, true>(s, part(block, 4), d, out);
        }
    }
}

#[inline(always)]
fn codes<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    codes: &[u8; 256],
    d: f32,
    out: &mut [O::Cell; 256],
) {
    let d = s.splat(d);
    for (codes, out) in codes
        .as_chunks::<32>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<32>().0)
    {
        let [low, high] = s.signed(s.bytes(codes));
        O::put::<S, PLAIN>(s, [s.mul(d, low), s.mul(d, high)], out);
    }
}
