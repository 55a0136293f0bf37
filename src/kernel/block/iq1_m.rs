//! IQ1_M: 256 elements in eights, each an entry of a grid and a shift of ±1/8; a scale of 3 bits per 16.
//! `qs[32] | qh[16] (2 × bits 8 to 10 of a grid index and the sign of its shift) | scales[4] (u16: 4 × 3
//! bits)`; the top nibbles of the scales, lowest first, are `d` (f16).

use crate::kernel::grid::{groups, moved};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq1_m);

#[inline(always)]
fn iq1_m<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<56>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([rest @ .., s0, s1, s2, s3, s4, s5, s6, s7], out) in blocks.iter().zip(out) {
        let scales = [[*s0, *s1], [*s2, *s3], [*s4, *s5], [*s6, *s7]].map(u16::from_le_bytes);
        let d = from_f16([s1 >> 4 | s3 & 0xf0, s5 >> 4 | s7 & 0xf0]);
        let (qs, qh) = rest.split_at(32);
        let (qs, qh) = (qs.as_chunks::<4>().0, qh.as_chunks::<2>().0);
        for (i, ((qs, qh), out)) in qs.iter().zip(qh).zip(groups(out)).enumerate() {
            let bits = scales[i / 2] >> (6 * (i % 2));
            let scales = [bits & 7, (bits >> 3) & 7].map(|scale| d * f32::from(2 * scale + 1));
            for (l, (q, out)) in qs.iter().zip(out).enumerate() {
                let high = qh[l / 2] >> (4 * (l % 2));
                let delta = if high & 8 == 0 { 0.125 } else { -0.125 };
                let q = usize::from(*q) | usize::from(high & 7) << 8;
                moved::<O>(out, scales[l / 2], tables::IQ1[q], delta);
            }
        }
    }
}
