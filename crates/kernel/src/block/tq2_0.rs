//! TQ2_0: 256 codes of 2 bits around 1, one scale. `qs[64] | d (f16)`. Each 32 bytes hold 128 codes,
//! lowest bits first.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, kernel};

kernel!(tq2_0);

/// What two bits stand for, whatever the two above them are.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0,
];

#[inline(always)]
fn tq2_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<66>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    let values = s.floats(&VALUES);
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 64));
        let tables = O::tables::<S, false>(s, [s.mul(values, s.splat(d)); 2]);
        for (half, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let qs = s.bytes(part(block, 32 * half));
            for (i, out) in (0..).zip(out.as_chunks_mut::<32>().0) {
                O::pick(s, tables, [0; 2], s.shr_u16(qs, 2 * i), out);
            }
        }
    }
}
