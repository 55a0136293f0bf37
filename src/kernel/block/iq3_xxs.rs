//! IQ3_XXS: 256 elements in eights, each two entries of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | qs[64] | 8 × (u32: 4 × 7 bits of signs, scale in the top 4)`.

use crate::kernel::grid::{groups, pair, signed};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq3_xxs);

#[inline(always)]
fn iq3_xxs<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<98>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, rest @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (qs, words) = rest.split_at(64);
        let qs = qs.as_chunks::<2>().0.as_chunks::<4>().0;
        for ((qs, word), out) in qs.iter().zip(words.as_chunks().0).zip(groups(out)) {
            let word = u32::from_le_bytes(*word);
            let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
            for (l, ([q0, q1], out)) in qs.iter().zip(out).enumerate() {
                let entry = pair(tables::IQ3_XXS[usize::from(*q0)], tables::IQ3_XXS[usize::from(*q1)]);
                let signs = tables::SIGNS[((word >> (7 * l)) & 127) as usize];
                signed::<O>(out, scale, entry, signs);
            }
        }
    }
}
