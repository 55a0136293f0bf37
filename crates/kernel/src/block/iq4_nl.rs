//! IQ4_NL: 32 codes of 4 bits into a codebook, one scale. `d (f16) | qs[16]`; low nibbles first.

use crate::codebook::IQ4;
use crate::{Element, Lanes, batch, kernel};

kernel!(iq4_nl);

#[inline(always)]
fn iq4_nl<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&IQ4);
    let mut pieces = batch::Pieces::<O, 18, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(d.as_flattened()), batch::in_memory(&d));
        for ((blocks, d), out) in blocks.iter().zip(d).zip(out) {
            if O::PARTICULAR && !finite {
                batch::nibbles::<S, O, false, 18>(s, blocks, 2, values, d, None, out);
            } else {
                batch::nibbles::<S, O, true, 18>(s, blocks, 2, values, d, None, out);
            }
        }
    }
}
