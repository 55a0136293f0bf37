//! Q2_0: 64 codes of 2 bits around 1, one scale. `d (f16) | qs[16]`; lowest bits first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q2_0);

#[inline(always)]
fn q2_0<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<18>();
    let (out, _) = O::cells(out).as_chunks_mut::<64>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
        let (words, _) = part::<16>(block, 2).as_chunks();
        for (word, out) in words.iter().zip(out.as_chunks_mut::<16>().0) {
            let word = u32::from_le_bytes(*word);
            for (j, out) in out.iter_mut().enumerate() {
                let code = (word >> (2 * j) & 3).cast_signed();
                *out = O::cell((code - 1) as f32 * d);
            }
        }
    }
}
