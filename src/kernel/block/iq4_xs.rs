//! IQ4_XS: 8 groups of 32 codes of 4 bits into a codebook; each has a scale of 6 bits around 32.
//! `d (f16) | scales_h (u16) | scales_l[4] | qs[128]`. Each 16 bytes of `qs` hold a group, low nibbles first.

use super::part;
use crate::kernel::codebook::iq4_cells;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(iq4_xs);

#[inline(always)]
fn iq4_xs<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<136>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 0));
        let high = u16::from_le_bytes(*part(block, 2));
        for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = block[4 + g / 2] >> (g % 2 * 4) & 15;
            let scale = i32::from(low) | i32::from(high >> (2 * g) & 3) << 4;
            let cells = iq4_cells::<O>(d * (scale - 32) as f32);
            for (j, q) in part::<16>(block, 8 + 16 * g).iter().enumerate() {
                out[j] = cells[usize::from(q & 15)];
                out[j + 16] = cells[usize::from(q >> 4)];
            }
        }
    }
}
