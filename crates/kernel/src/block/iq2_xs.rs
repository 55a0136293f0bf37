//! IQ2_XS: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 16.
//! `d (f16) | qs[32] (u16: 9 bits of grid index, 7 of signs) | scales[8]`; low nibbles first.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel, tables};

kernel!(iq2_xs);

#[inline(always)]
fn iq2_xs<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<74>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
        if O::PARTICULAR && !d.is_finite() {
            groups::<S, O, false>(s, d, block, out);
        } else {
            groups::<S, O, true>(s, d, block, out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    d: f32,
    block: &[u8; 74],
    out: &mut [O::Cell; 256],
) {
    let [low, high] = grid::quarter_scales(s, d, part(block, 66));
    let (qs, _) = part::<64>(block, 2).as_chunks::<8>();
    let mut signs = [0; 8];
    for (qs, signs) in qs.iter().zip(&mut signs) {
        // the upper seven bits of each sixteen, as one word of four times seven
        let q = u64::from_le_bytes(*qs);
        let word = q >> 9 & 0x7f | q >> 18 & 0x3f80 | q >> 27 & 0x1f_c000 | q >> 36 & 0x0fe0_0000;
        *signs = grid::even_signs(grid::low(word));
    }
    let signs = grid::kept(signs);
    for (g, (qs, out)) in qs.iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
        let q = u64::from_le_bytes(*qs);
        let entries = each!(at in [0, 16, 32, 48] => tables::IQ2_XS[grid::index(q, at) & 511]);
        grid::signed::<S, O, PLAIN>(s, [low[g], high[g]], entries, signs[g], out);
    }
}
