//! IQ2_XXS: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | 8 × (4 grid indices (u8), u32: 4 × 7 bits of signs, scale in the top 4)`.

use crate::kernel::grid::{groups, quarter_scale, signed};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq2_xxs);

#[inline(always)]
fn iq2_xxs<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<66>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, qs @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (qs, _) = qs.as_chunks::<8>();
        for ([q0, q1, q2, q3, word @ ..], out) in qs.iter().zip(groups(out)) {
            let scale = quarter_scale(d, word[3] >> 4);
            let word = u32::from_le_bytes(*word);
            for (l, (q, out)) in [q0, q1, q2, q3].into_iter().zip(out).enumerate() {
                let signs = tables::SIGNS[((word >> (7 * l)) & 127) as usize];
                signed::<O>(out, scale, tables::IQ2_XXS[usize::from(*q)], signs);
            }
        }
    }
}
