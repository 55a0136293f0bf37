//! IQ3_XXS: 256 elements in eights, each two entries of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | qs[64] | 8 × (u32: 4 × 7 bits of signs, scale in the top 4)`.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, each, grid, kernel, tables};

kernel!(iq3_xxs);

#[inline(always)]
fn iq3_xxs<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<98>();
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
    block: &[u8; 98],
    out: &mut [O::Cell; 256],
) {
    let (mut scales, mut signs) = ([0.0; 8], [0; 8]);
    let (words, _) = part::<32>(block, 66).as_chunks();
    for ((word, scale), signs) in words.iter().zip(&mut scales).zip(&mut signs) {
        let word = u32::from_le_bytes(*word);
        *scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        *signs = grid::even_signs(word);
    }
    let (scales, signs) = grid::kept((scales, signs));
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let q = u64::from_le_bytes(*part(block, 2 + 8 * g));
        let entries = each!(at in [0, 16, 32, 48] => {
            grid::pair(tables::IQ3_XXS[grid::index(q, at) & 255], tables::IQ3_XXS[grid::index(q, at + 8) & 255])
        });
        grid::signed::<S, O, PLAIN>(s, [scales[g]; 2], entries, signs[g], out);
    }
}
