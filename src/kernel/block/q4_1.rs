//! Q4_1: 32 codes of 4 bits, scale and minimum. `d (f16) | m (f16) | qs[16]`; low nibbles first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q4_1);

#[inline(always)]
fn q4_1<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<20>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(out) {
        let (d, m) = (from_f16(*part(block, 0)), from_f16(*part(block, 2)));
        for (j, q) in part::<16>(block, 4).iter().enumerate() {
            out[j] = O::cell(f32::from(q & 15) * d + m);
            out[j + 16] = O::cell(f32::from(q >> 4) * d + m);
        }
    }
}
