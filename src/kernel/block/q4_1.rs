//! Q4_1: 32 codes of 4 bits, scale and minimum. `d (f16) | m (f16) | qs[16]`; low nibbles first.

use crate::kernel::{Element, Lanes, batch, kernel};

kernel!(q4_1);

#[inline(always)]
fn q4_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let codes = s.floats(&batch::CODES);
    batch::sixteens::<O, 20, 32>(blocks, out, |blocks, out| {
        let scales = [0, 2].map(|at| batch::scales(s, blocks, at));
        let [d, m] = batch::in_memory(&scales);
        let values = |i: usize| s.add(s.mul(codes, s.splat(d[i])), s.splat(m[i]));
        if O::PARTICULAR && !(batch::finite(d) && batch::finite(m)) {
            batch::nibbles::<S, O, false, 20>(s, blocks, 4, values, out);
        } else {
            batch::nibbles::<S, O, true, 20>(s, blocks, 4, values, out);
        }
    });
}
