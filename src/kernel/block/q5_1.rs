//! Q5_1: 32 codes of 5 bits, scale and minimum. `d (f16) | m (f16) | qh (u32) | qs[16]`; low nibbles
//! first, bit `i` of `qh` is the fifth bit of code `i`.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q5_1);

#[inline(always)]
fn q5_1<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<24>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(out) {
        let (d, m) = (from_f16(*part(block, 0)), from_f16(*part(block, 2)));
        let high = u32::from_le_bytes(*part(block, 4));
        for (j, q) in part::<16>(block, 8).iter().enumerate() {
            let low = u32::from(q & 15) | (high >> j << 4) & 16;
            let up = u32::from(q >> 4) | (high >> (j + 12)) & 16;
            out[j] = O::cell(low.cast_signed() as f32 * d + m);
            out[j + 16] = O::cell(up.cast_signed() as f32 * d + m);
        }
    }
}
