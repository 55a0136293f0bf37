//! MXFP4: 32 FP4 (E2M1) codes, one scale (E8M0). `e | qs[16]`; low nibbles first.

use super::part;
use crate::kernel::codebook::{e8m0_half, fp4_doubled};
use crate::kernel::{Element, Lanes, kernel};

kernel!(mxfp4);

#[inline(always)]
fn mxfp4<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<17>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(out) {
        let d = e8m0_half(block[0]);
        for (j, q) in part::<16>(block, 1).iter().enumerate() {
            out[j] = O::cell(fp4_doubled(q & 15) * d);
            out[j + 16] = O::cell(fp4_doubled(q >> 4) * d);
        }
    }
}
