//! IQ1_S: 256 elements in eights, each an entry of a grid; a scale of 3 bits and a shift of ±1/8 per 32.
//! `d (f16) | qs[32] | qh[8] (u16: 4 × bits 8 to 10 of a grid index, 3 bits of scale, sign of the shift)`.

use crate::kernel::grid::{groups, moved};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq1_s);

#[inline(always)]
fn iq1_s<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<50>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, rest @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (qs, qh) = rest.split_at(32);
        for ((qs, qh), out) in qs.as_chunks::<4>().0.iter().zip(qh.as_chunks().0).zip(groups(out)) {
            let qh = u16::from_le_bytes(*qh);
            let scale = d * f32::from(2 * ((qh >> 12) & 7) + 1);
            let delta = if qh & 0x8000 == 0 { 0.125 } else { -0.125 };
            for (l, (q, out)) in qs.iter().zip(out).enumerate() {
                let q = usize::from(*q) | usize::from((qh >> (3 * l)) & 7) << 8;
                moved::<O>(out, scale, tables::IQ1[q], delta);
            }
        }
    }
}
