//! Q4_1: 32 codes of 4 bits, scale and minimum. `d (f16) | m (f16) | qs[16]`; low nibbles first.

use crate::{Element, Lanes, batch, kernel};

kernel!(q4_1);

#[inline(always)]
fn q4_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let codes = s.floats(&batch::CODES);
    let mut pieces = batch::Pieces::<O, 20, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let (d, m) = (batch::scales(s, blocks, 0), batch::scales(s, blocks, 2));
        let finite = batch::finite(d.as_flattened()) & batch::finite(m.as_flattened());
        let (d, m) = (batch::in_memory(&d), batch::in_memory(&m));
        for (((blocks, d), m), out) in blocks.iter().zip(d).zip(m).zip(out) {
            if O::PARTICULAR && !finite {
                batch::nibbles::<S, O, false, 20>(s, blocks, 4, codes, d, Some(m), out);
            } else {
                batch::nibbles::<S, O, true, 20>(s, blocks, 4, codes, d, Some(m), out);
            }
        }
    }
}
