//! Q1_0: 128 codes of 1 bit, one scale. `d (f16) | qs[16]`; lowest bits first, 0 is `-d` and 1 is `d`.

use super::part;
use crate::{Element, Lanes, batch, kernel};

kernel!(q1_0);

static VALUES: [f32; 16] = [
    -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0,
];

#[inline(always)]
fn q1_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&VALUES);
    let mut pieces = batch::Pieces::<O, 18, 128>::new(blocks, out);
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
            let (words, _) = part::<16>(block, 2).as_chunks();
            for (word, out) in words.iter().zip(out.as_chunks_mut::<32>().0) {
                O::pick(
                    s,
                    tables,
                    [0; 2],
                    s.keep(u32::from_le_bytes(*word), s.splat_byte(1)),
                    out,
                );
            }
        }
    }
}
