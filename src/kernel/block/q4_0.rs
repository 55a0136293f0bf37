//! Q4_0: 32 codes of 4 bits around 8, one scale. `d (f16) | qs[16]`; low nibbles first.

use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(q4_0);

/// What the codes stand for.
static VALUES: [f32; 16] = [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

#[inline(always)]
fn q4_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<18>();
    let (out, _) = O::cells(out).as_chunks_mut::<32>();
    let values = s.floats(&VALUES);
    for ([d0, d1, qs @ ..], out) in blocks.iter().zip(out) {
        let scaled = s.mul(values, s.splat(from_f16([*d0, *d1])));
        let tables = O::tables(s, [scaled; 2]);
        O::pick(s, tables, s.nibbles(qs), out);
    }
}
