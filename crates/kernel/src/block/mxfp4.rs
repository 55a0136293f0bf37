//! MXFP4: 32 FP4 (E2M1) codes, one scale (E8M0). `e | qs[16]`; low nibbles first.

use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::{Element, Lanes, batch, kernel};

kernel!(mxfp4);

#[inline(always)]
fn mxfp4<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&FP4_DOUBLED);
    let mut pieces = batch::Pieces::<O, 17, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let mut scales = [[2; 16]; batch::MOST];
        for (scale, block) in scales
            .as_flattened_mut()
            .iter_mut()
            .zip(blocks.as_flattened())
        {
            *scale = block[0];
        }
        let (mut d, mut subnormal) = ([[0.0; 16]; batch::MOST], false);
        for (d, scale) in d.as_flattened_mut().iter_mut().zip(scales.as_flattened()) {
            *d = e8m0_half(*scale);
        }
        for scale in scales.as_flattened() {
            subnormal |= *scale < 2;
        }
        for ((blocks, d), out) in blocks.iter().zip(batch::in_memory(&d)).zip(out) {
            if O::PARTICULAR && subnormal {
                batch::nibbles::<S, O, false, 17>(s, blocks, 1, values, d, None, out);
            } else {
                batch::nibbles::<S, O, true, 17>(s, blocks, 1, values, d, None, out);
            }
        }
    }
}
