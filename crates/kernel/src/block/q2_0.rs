//! Q2_0: 64 codes of 2 bits around 1, one scale. `d (f16) | qs[16]`; lowest bits first.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q2_0);

/// What the lower two bits stand for where the upper two are zero, and the other way round.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0,
];

#[inline(always)]
fn q2_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&VALUES);
    let mut pieces = batch::Pieces::<O, 18, 64>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let d = batch::scales(s, blocks, 0);
        let d = batch::in_memory(&d).as_flattened();
        for ((block, d), out) in blocks
            .as_flattened()
            .iter()
            .zip(d)
            .zip(out.as_flattened_mut())
        {
            let tables = O::tables::<S, false>(s, [s.mul(values, s.splat(*d)); 2]);
            let (eights, _) = part::<16>(block, 2).as_chunks();
            for (eight, out) in eights.iter().zip(out.as_chunks_mut::<32>().0) {
                O::pick(s, tables, [0; 2], s.pairs_of_bits(eight), out);
            }
        }
    }
}
