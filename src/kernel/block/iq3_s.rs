//! IQ3_S: 256 elements in eights, each two entries of a grid with signs; a scale of 4 bits per 32.
//! `d (f16) | qs[64] | qh[8] (bit 8 of eight grid indices) | signs[32] | scales[4]`; low nibbles first.

use crate::kernel::grid::{groups, pair, signed};
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel, tables};

kernel!(iq3_s);

#[inline(always)]
fn iq3_s<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<110>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for ([d0, d1, rest @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let (qs, rest) = rest.split_at(64);
        let (qh, rest) = rest.split_at(8);
        let (signs, scales) = rest.split_at(32);
        let qs = qs.as_chunks::<2>().0.as_chunks::<4>().0;
        let (signs, _) = signs.as_chunks::<4>();
        for (i, (((qs, qh), signs), out)) in qs.iter().zip(qh).zip(signs).zip(groups(out)).enumerate() {
            let scale = d * f32::from(1 + 2 * ((scales[i / 2] >> (4 * (i % 2))) & 15));
            for (l, (([q0, q1], signs), out)) in qs.iter().zip(signs).zip(out).enumerate() {
                let entry = |q: &u8, bit| tables::IQ3_S[usize::from(*q) | usize::from((qh >> bit) & 1) << 8];
                signed::<O>(out, scale, pair(entry(q0, 2 * l), entry(q1, 2 * l + 1)), *signs);
            }
        }
    }
}
