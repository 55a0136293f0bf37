//! Q4_1: 32 codes of 4 bits, scale and minimum. `d (f16) | m (f16) | qs[16]`; low nibbles first.

use crate::{Element, Lanes, batch, kernel};

kernel!(q4_1);

#[inline(always)]
fn q4_1<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let codes = s.floats(&batch::CODES);
    batch::sixteens::<O, 20, 32>(blocks, out, |blocks, out| {
        let scales = [0, 2].map(|at| batch::scales(s, blocks, at));
        let finite = batch::finite(scales.as_flattened());
        let [d, m] = scales.each_ref().map(|scales| batch::in_memory(scales));
        let values = |(d, m): (&f32, &f32)| s.add(s.mul(codes, s.splat(*d)), s.splat(*m));
        if O::PARTICULAR && !finite {
            batch::nibbles::<S, O, _, false, 20>(s, blocks, 4, d.iter().zip(m), values, out);
        } else {
            batch::nibbles::<S, O, _, true, 20>(s, blocks, 4, d.iter().zip(m), values, out);
        }
    });
}
