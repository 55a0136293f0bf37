//! IQ4_NL: 32 codes of 4 bits into a codebook, one scale. `d (f16) | qs[16]`; low nibbles first.

use super::part;
use crate::kernel::codebook::iq4_cells;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(iq4_nl);

#[inline(always)]
fn iq4_nl<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<18>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(out) {
        let cells = iq4_cells::<O>(from_f16(*part(block, 0)));
        for (j, q) in part::<16>(block, 2).iter().enumerate() {
            out[j] = cells[usize::from(q & 15)];
            out[j + 16] = cells[usize::from(q >> 4)];
        }
    }
}
