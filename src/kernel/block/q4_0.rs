//! Q4_0: 32 codes of 4 bits around 8, one scale. `d (f16) | qs[16]`; low nibbles first.

use crate::kernel::half::from_f16;
use crate::kernel::{Element, kernel};

kernel!(q4_0);

#[inline(always)]
fn q4_0<O: Element>(blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<18>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for ([d0, d1, qs @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        for (j, q) in qs.iter().enumerate() {
            out[j] = O::cell((i32::from(q & 15) - 8) as f32 * d);
            out[j + 16] = O::cell((i32::from(q >> 4) - 8) as f32 * d);
        }
    }
}
