//! IQ4_NL: 32 codes of 4 bits into a codebook, one scale. `d (f16) | qs[16]`; low nibbles first.

use crate::codebook::IQ4;
use crate::{Element, Lanes, batch, kernel};

kernel!(iq4_nl);

#[inline(always)]
fn iq4_nl<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let values = s.floats(&IQ4);
    let mut batches = batch::Sixteens::<O, 18, 32>::new(blocks, out);
    while let Some((blocks, out)) = batches.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(&d), batch::in_memory(&d));
        if O::PARTICULAR && !finite {
            batch::nibbles::<S, O, false, 18>(s, blocks, 2, values, d, &[], out);
        } else {
            batch::nibbles::<S, O, true, 18>(s, blocks, 2, values, d, &[], out);
        }
    }
}
