//! IQ2_S: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 16.
//! `d (f16) | qs[32] | signs[32] | qh[8] (bits 8 and 9 of four grid indices) | scales[8]`; low nibbles first.

use crate::kernel::grid::{groups, quarter_scale, signed};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq2_s);

#[inline(always)]
fn iq2_s<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<82>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, rest @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (fours, _) = rest.as_chunks::<4>();
        let (qs, signs) = fours.split_at(8);
        let (qh, scales) = rest[64..].split_at(8);
        for ((((qs, signs), qh), nibbles), out) in qs.iter().zip(signs).zip(qh).zip(scales).zip(groups(out)) {
            let scales = [quarter_scale(d, nibbles & 15), quarter_scale(d, nibbles >> 4)];
            for (l, ((q, signs), out)) in qs.iter().zip(signs).zip(out).enumerate() {
                let q = usize::from(*q) | usize::from((qh >> (2 * l)) & 3) << 8;
                signed::<O>(out, scales[l / 2], tables::IQ2_S[q], *signs);
            }
        }
    }
}
