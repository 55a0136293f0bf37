//! NVFP4: 4 groups of 16 FP4 (E2M1) codes; each has a scale (UE4M3). `d[4] | qs[32]`; each 8 bytes of `qs`
//! hold a group, low nibbles first. The scale of the whole tensor is a tensor of its own, not applied here.

use super::part;
use crate::codebook::{FP4_DOUBLED, ue4m3_halves};
use crate::{Element, Lanes, batch, each, kernel};

kernel!(nvfp4);

#[inline(always)]
fn nvfp4<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&FP4_DOUBLED);
    let mut pieces = batch::Pieces::<O, 36, 64>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let mut d = [[[0.0; 16]; 4]; batch::MOST];
        for (d, blocks) in d
            .as_flattened_mut()
            .iter_mut()
            .zip(blocks.as_flattened().as_chunks::<4>().0)
        {
            *d = ue4m3_halves(
                s,
                each!(i in [0, 1, 2, 3] => u32::from_le_bytes(*part(&blocks[i], 0))),
            );
        }
        let (d, _) = batch::in_memory(d.as_flattened().as_flattened()).as_chunks::<4>();
        for ((block, d), out) in blocks
            .as_flattened()
            .iter()
            .zip(d)
            .zip(out.as_flattened_mut())
        {
            for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                // scales are never subnormal, infinite or NaN
                let codes = s.nibbles_by_eight(part(block, 4 + 16 * g));
                O::pick_scaled::<S, true>(s, values, [d[2 * g], d[2 * g + 1]], codes, out);
            }
        }
    }
}
