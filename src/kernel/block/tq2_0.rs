//! TQ2_0: 256 codes of 2 bits around 1, one scale. `qs[64] | d (f16)`. Each 32 bytes hold 128 codes,
//! lowest bits first.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(tq2_0);

#[inline(always)]
fn tq2_0<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<66>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 64));
        for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let shift = g % 4 * 2;
            for (q, out) in part::<32>(block, g / 4 * 32).iter().zip(out) {
                *out = O::cell((i32::from((q >> shift) & 3) - 1) as f32 * d);
            }
        }
    }
}
