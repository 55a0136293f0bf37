//! IQ2_XXS: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | 8 × (4 grid indices (u8), u32: 4 × 7 bits of signs, scale in the top 4)`.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel, tables};

kernel!(iq2_xxs);

#[inline(always)]
fn iq2_xxs<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<66>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
        if O::PARTICULAR && !d.is_finite() {
            groups::<S, O, false>(s, d, part(block, 2), out);
        } else {
            groups::<S, O, true>(s, d, part(block, 2), out);
        }
    }
}

#[inline(always)]
fn groups<S: Lanes, O: Element, const PLAIN: bool>(
    s: S,
    d: f32,
    qs: &[u8; 64],
    out: &mut [O::Cell; 256],
) {
    let (qs, _) = qs.as_chunks::<8>();
    let (mut scales, mut signs) = ([0.0; 8], [0; 8]);
    for ((qs, scale), signs) in qs.iter().zip(&mut scales).zip(&mut signs) {
        let word = u32::from_le_bytes(*part(qs, 4));
        *scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        *signs = grid::even_signs(word);
    }
    let (scales, signs) = grid::kept((scales, signs));
    let (out, _) = out.as_chunks_mut::<32>();
    for (((qs, scale), signs), out) in qs.iter().zip(scales).zip(signs).zip(out) {
        let entries = each!(i in [0, 1, 2, 3] => tables::IQ2_XXS[usize::from(qs[i])]);
        grid::signed::<S, O, PLAIN>(s, [scale; 2], entries, signs, out);
    }
}
