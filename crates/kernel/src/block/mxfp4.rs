//! MXFP4: 32 FP4 (E2M1) codes, one scale (E8M0). `e | qs[16]`; low nibbles first.

use crate::codebook::{FP4_DOUBLED, e8m0_half};
use crate::{Element, Lanes, batch, kernel};

kernel!(mxfp4);

#[inline(always)]
fn mxfp4<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&FP4_DOUBLED);
    batch::sixteens::<O, 17, 32>(blocks, out, |blocks, out| {
        let d: [f32; 16] = std::array::from_fn(|i| e8m0_half(blocks[i][0]));
        let d = batch::in_memory(&d);
        if O::PARTICULAR && blocks.iter().fold(false, |any, block| any | (block[0] < 2)) {
            batch::nibbles::<S, O, false, 17>(s, blocks, 1, values, d, &[], out);
        } else {
            batch::nibbles::<S, O, true, 17>(s, blocks, 1, values, d, &[], out);
        }
    });
}
