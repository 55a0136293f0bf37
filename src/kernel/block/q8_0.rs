//! Q8_0: 32 codes of 8 bits, one scale. `d (f16) | qs[32]`.

use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q8_0);

#[inline(always)]
fn q8_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<34>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    for ([d0, d1, qs @ ..], out) in blocks.iter().zip(out) {
        let d = from_f16([*d0, *d1]);
        let scale = s.splat(d);
        let x = s.signed(s.bytes(qs)).map(|codes| s.mul(codes, scale));
        if O::PARTICULAR && !d.is_finite() { O::put::<S, false>(s, x, out) } else { O::put::<S, true>(s, x, out) }
    }
}
