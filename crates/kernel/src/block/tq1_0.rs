//! TQ1_0: 256 ternary digits around 1, five to a byte, one scale. `qs[48] | qh[4] | d (f16)`.
//! A byte is a fraction of 256 in base 3; digit `n` of 32 bytes, of 16, and of 4 (four digits each) follow
//! each other.

use super::part;
use crate::half::from_f16;
use crate::{Element, Lanes, kernel};

kernel!(tq1_0);

/// What the number of digits' thresholds above a fraction, 0 to 2, stands for.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0,
];

#[inline(always)]
fn tq1_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<54>();
    let (out, _) = O::cells(out).as_chunks_mut::<256>();
    let values = s.floats(&VALUES);
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*part(block, 52));
        let tables = O::tables::<S, false>(s, [s.mul(values, s.splat(d)); 2]);
        let (wide, narrow) = out.split_at_mut(160);
        let mut x = s.bytes(part(block, 0));
        for out in wide.as_chunks_mut::<32>().0 {
            O::pick(s, tables, [0; 2], digits(s, x), out);
            x = s.add_bytes(s.add_bytes(x, x), x);
        }
        let (mut first, mut last) = ([[0; 16]; 5], [[0; 4]; 4]);
        powers(*part(block, 32), &mut first);
        powers(*part(block, 48), &mut last);
        let (pairs, [fifth]) = first.as_chunks::<2>() else {
            unreachable!("five are two pairs and one")
        };
        let last = last.as_flattened().first_chunk().expect("four fours");
        for ([first, second], out) in pairs
            .iter()
            .chain([&[*fifth, *last]])
            .zip(narrow.as_chunks_mut::<32>().0)
        {
            O::pick(s, tables, [0; 2], digits(s, s.pair(first, second)), out);
        }
    }
}

/// The first digits of fractions: that of x is the integer part of 3x.
#[inline(always)]
fn digits<S: Lanes>(s: S, x: S::Bytes) -> S::Bytes {
    s.sub_bytes(
        s.sub_bytes(s.splat_byte(0), s.above(x, 85)),
        s.above(x, 170),
    )
}

/// Fractions that begin with each digit in turn.
#[inline(always)]
fn powers<const N: usize>(mut x: [u8; N], out: &mut [[u8; N]]) {
    for out in out {
        *out = x;
        for x in &mut x {
            *x = x.wrapping_mul(3);
        }
    }
}
