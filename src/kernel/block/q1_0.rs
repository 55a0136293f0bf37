//! Q1_0: 128 codes of 1 bit, one scale. `d (f16) | qs[16]`; lowest bits first, 0 is `-d` and 1 is `d`.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q1_0);

#[inline(always)]
fn q1_0<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<18>();
    let (out, _) = O::cells(out).as_chunks_mut::<128>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0)).to_bits();
        let (words, _) = part::<16>(block, 2).as_chunks();
        for (word, out) in words.iter().zip(out.as_chunks_mut::<32>().0) {
            let minus = !u32::from_le_bytes(*word);
            for (j, out) in out.iter_mut().enumerate() {
                *out = O::cell(f32::from_bits(d ^ minus >> j << 31));
            }
        }
    }
}
