//! TQ1_0 (`block_tq1_0`): 256 ternary codes, five to a byte, one scale, 54 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `qs[48]` | five codes per byte: digit `n` of bytes 0 to 31 are codes `32 * n ..`, then digit `n` of bytes 32 to 47 are codes `160 + 16 * n ..` |
//! | 48 | `qh[4]` | four codes per byte: digit `n` are codes `240 + 4 * n ..` |
//! | 52 | `d` | F16 scale |
//!
//! `x = d * (digit - 1)`.
//!
//! A byte `b` is the fraction `b / 256` in base 3. Its first digit is the integer part of `3 * b / 256`, and the remaining
//! digits are the digits of `3 * b` modulo 256. So a digit takes two comparisons, the next two additions, and no division.

use crate::field::field;
use crate::half::from_f16;
use crate::{OutputElement, Simd, kernel};

kernel!(tq1_0);

/// The values of the digits, repeated to 16: the lookup uses four bits.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0,
];

#[inline(always)]
fn tq1_0<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<54>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    let values = simd.load_f32(&VALUES);
    for (block, out) in blocks.iter().zip(out) {
        let d = from_f16(*field(block, 52));
        // one pair of equal tables per block, so there is no separate path for finite scales
        let tables = O::tables::<S, false>(simd, [simd.mul(values, simd.splat(d)); 2]);
        // codes 0 to 159: digits of 32 bytes, a vector per digit
        let (wide, narrow) = out.split_at_mut(160);
        let mut x = simd.load_u8(field(block, 0));
        for out in wide.as_chunks_mut::<32>().0 {
            O::lookup(simd, tables, [0; 2], leading_digits(simd, x), out);
            // times 3 modulo 256 by two additions: x86 has no multiplication of bytes
            x = simd.add_u8(simd.add_u8(x, x), x);
        }
        // codes 160 to 255: digits of 16 and of 4 bytes, computed as arrays and joined to vectors of 32
        let (mut first, mut last) = ([[0; 16]; 5], [[0; 4]; 4]);
        shift_digits(*field(block, 32), &mut first);
        shift_digits(*field(block, 48), &mut last);
        let (pairs, [fifth]) = first.as_chunks::<2>() else {
            unreachable!("five rows are two pairs and one")
        };
        // the four digits of the last four bytes follow the fifth digit of the 16 bytes
        let last = last
            .as_flattened()
            .first_chunk()
            .expect("four rows of four bytes");
        for ([first, second], out) in pairs
            .iter()
            .chain([&[*fifth, *last]])
            .zip(narrow.as_chunks_mut::<32>().0)
        {
            O::lookup(
                simd,
                tables,
                [0; 2],
                leading_digits(simd, simd.concat_u8x16(first, second)),
                out,
            );
        }
    }
}

/// The first base-3 digit of each byte as a fraction of 256: 0, 1 above 85, 2 above 170. A comparison gives -1 for true, so
/// subtracting both from zero counts them.
#[inline(always)]
fn leading_digits<S: Simd>(simd: S, x: S::Bytes) -> S::Bytes {
    simd.sub_u8(
        // 3 * 85 = 255 is the last product below 256, 3 * 170 = 510 the last below 512
        simd.sub_u8(simd.splat_u8(0), simd.gt_u8(x, 85)),
        simd.gt_u8(x, 170),
    )
}

/// Fills `out[n]` with the bytes whose first digit is digit `n` of `x`: times 3 for each, modulo 256.
#[inline(always)]
fn shift_digits<const N: usize>(mut x: [u8; N], out: &mut [[u8; N]]) {
    for out in out {
        *out = x;
        for x in &mut x {
            *x = x.wrapping_mul(3);
        }
    }
}
