//! IQ2_XS: 256 elements in eights, each an entry of a grid with signs; a scale of 4 bits per 16.
//! `d (f16) | qs[32] (u16: 9 bits of grid index, 7 of signs) | scales[8]`; low nibbles first.

use crate::kernel::grid::{groups, quarter_scale, signed};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq2_xs);

#[inline(always)]
fn iq2_xs<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<74>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, rest @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (qs, scales) = rest.split_at(64);
        let qs = qs.as_chunks::<2>().0.as_chunks::<4>().0;
        for ((qs, nibbles), out) in qs.iter().zip(scales).zip(groups(out)) {
            let scales = [quarter_scale(d, nibbles & 15), quarter_scale(d, nibbles >> 4)];
            for (l, (q, out)) in qs.iter().zip(out).enumerate() {
                let q = usize::from(u16::from_le_bytes(*q));
                signed::<O>(out, scales[l / 2], tables::IQ2_XS[q & 511], tables::SIGNS[q >> 9 & 127]);
            }
        }
    }
}
