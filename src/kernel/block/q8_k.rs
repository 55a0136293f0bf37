//! Q8_K: 256 codes of 8 bits, one scale. `d (f32) | qs[256] | bsums[16] (i16)`; the sums serve dot
//! products only.

use super::part;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q8_k);

#[inline(always)]
fn q8_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<292>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = f32::from_le_bytes(*part(block, 0));
        for (q, out) in part::<256>(block, 4).iter().zip(out) {
            *out = O::cell(d * f32::from(q.cast_signed()));
        }
    }
}
