//! Q2_K: 16 groups of 16 codes of 2 bits; each has a scale and a minimum of 4 bits.
//! `scales[16] | qs[64] | d (f16) | dmin (f16)`. Each 32 bytes of `qs` hold 128 codes, lowest bits first.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q2_k);

/// What two bits stand for by themselves, for each of four groups.
static CODES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0,
];

#[inline(always)]
fn q2_k<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<84>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let [d, min] = batch::two_halves(s, part(block, 80));
        let nibbles = s.unsigned(s.nibbles(part(block, 0)));
        let scales = [
            s.mul(s.splat(d), nibbles[0]),
            s.mul(s.splat(min), nibbles[1]),
        ];
        if O::PARTICULAR && !(d.is_finite() && min.is_finite()) {
            groups::<S, O, false>(s, part(block, 16), scales, out);
        } else {
            groups::<S, O, true>(s, part(block, 16), scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    qs: &[u8; 64],
    [scales, minima]: [S::Floats; 2],
    out: &mut [O::Cell; 256],
) {
    let codes = s.floats(&CODES);
    // of four groups each: four values a group
    let values = s.quarters(scales).into_iter().zip(s.quarters(minima));
    let mut tables = [codes; 4];
    for (table, (scales, minima)) in tables.iter_mut().zip(values) {
        *table = s.sub(s.mul(scales, codes), minima);
    }
    // which of the four
    let groups = [s.pair(&[0; 16], &[4; 16]), s.pair(&[8; 16], &[12; 16])];
    for ((qs, tables), out) in qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(tables.as_chunks::<2>().0)
        .zip(out.as_chunks_mut::<128>().0)
    {
        let tables = O::tables::<S, PLAIN>(s, *tables);
        let qs = s.bytes(qs);
        for ((i, out), at) in out
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .enumerate()
            .zip([0, 2, 4, 6])
        {
            let codes = s.or(s.and(s.shr_u16(qs, at), s.splat_byte(3)), groups[i % 2]);
            O::pick(s, tables, [i / 2; 2], codes, out);
        }
    }
}
