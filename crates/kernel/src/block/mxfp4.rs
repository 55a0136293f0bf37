//! MXFP4: 32 FP4 (E2M1) codes, one scale (E8M0). `e | qs[16]`; low nibbles first.

use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::{Element, Lanes, batch, kernel};

kernel!(mxfp4);

#[inline(always)]
fn mxfp4<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&FP4_DOUBLED);
    let mut batches = batch::Sixteens::<O, 17, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.more() {
        let mut scales = [0; 16];
        for (scale, block) in scales.iter_mut().zip(blocks) {
            *scale = block[0];
        }
        let (mut d, mut subnormal) = ([0.0; 16], false);
        for (d, scale) in d.iter_mut().zip(&scales) {
            *d = e8m0_half(*scale);
        }
        for scale in scales {
            subnormal |= scale < 2;
        }
        let d = batch::in_memory(&d);
        if O::PARTICULAR && subnormal {
            batch::nibbles::<S, O, false, 17>(s, blocks, 1, values, d, &[], out);
        } else {
            batch::nibbles::<S, O, true, 17>(s, blocks, 1, values, d, &[], out);
        }
    }
}
