//! TQ1_0: 256 ternary digits around 1, five to a byte, one scale. `qs[48] | qh[4] | d (f16)`.
//! A byte is a fraction of 256 in base 3; digit `n` of 32 bytes, of 16, and of 4 (four digits each) follow
//! each other.

use super::part;
use crate::kernel::half::from_f16;
use crate::kernel::{Element, Lanes, kernel};

kernel!(tq1_0);

/// Digit by digit, every byte's first, then every byte's second.
#[inline(always)]
fn digits<O: Element, const N: usize>(bytes: &[u8; N], d: f32, out: &mut [O::Cell]) {
    let mut rest = *bytes;
    for out in out.as_chunks_mut::<N>().0 {
        for (byte, out) in rest.iter_mut().zip(out) {
            let digit = (u16::from(*byte) * 3) >> 8;
            *byte = byte.wrapping_mul(3);
            *out = O::cell((i32::from(digit) - 1) as f32 * d);
        }
    }
}

#[inline(always)]
fn tq1_0<S: Lanes, O: Element>(_: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<54>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 52));
        digits::<O, 32>(part(block, 0), d, &mut out[..160]);
        digits::<O, 16>(part(block, 32), d, &mut out[160..240]);
        digits::<O, 4>(part(block, 48), d, &mut out[240..]);
    }
}
