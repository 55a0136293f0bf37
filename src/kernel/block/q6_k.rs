//! Q6_K: 16 groups of 16 codes of 6 bits around 32; each has a scale of 8 bits.
//! `ql[128] | qh[64] | scales[16] (i8) | d (f16)`. Of each 128 codes, `ql` has 64 bytes, low nibbles
//! first, and `qh` 32 bytes, lowest bits first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q6_k);

#[inline(always)]
fn q6_k<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<210>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 208));
        for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let dl = d * f32::from(block[192 + g].cast_signed());
            let (half, g) = (g / 8, g % 8);
            let (nibble, pair) = (g / 4 * 4, g / 2 * 2);
            let low = part::<16>(block, half * 64 + g % 4 * 16);
            let high = part::<16>(block, 128 + half * 32 + g % 2 * 16);
            for ((q, h), out) in low.iter().zip(high).zip(out) {
                let code = (q >> nibble) & 15 | (h >> pair & 3) << 4;
                *out = O::cell(dl * (i32::from(code) - 32) as f32);
            }
        }
    }
}
