//! NVFP4: 4 groups of 16 FP4 (E2M1) codes; each has a scale (UE4M3). `d[4] | qs[32]`; each 8 bytes of `qs`
//! hold a group, low nibbles first. The scale of the whole tensor is a tensor of its own, not applied here.

use super::part;
use crate::kernel::codebook::{fp4_doubled, ue4m3_half};
use crate::kernel::{Element, Lanes, kernel};

kernel!(nvfp4);

#[inline(always)]
fn nvfp4<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<36>();
    let (out, _) = O::cells(out).as_chunks_mut::<64>();
    for (block, out) in blocks.iter().zip(out) {
        for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = ue4m3_half(block[g]);
            for (j, q) in part::<8>(block, 4 + 8 * g).iter().enumerate() {
                out[j] = O::cell(fp4_doubled(q & 15) * d);
                out[j + 8] = O::cell(fp4_doubled(q >> 4) * d);
            }
        }
    }
}
