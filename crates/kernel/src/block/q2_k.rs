//! Q2_K (`block_q2_K`): 256 codes of 2 bits in 16 groups of 16, 84 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `scales[16]` | per group: scale in bits 0 to 3, minimum in bits 4 to 7 |
//! | 16 | `qs[64]` | codes: each 32 bytes hold 128, of which bits 0 and 1 are the first 32 |
//! | 80 | `d` | F16 scale of the scales |
//! | 82 | `dmin` | F16 scale of the minima |
//!
//! `x = d * scale * q - dmin * minimum`.
//!
//! A group has four possible results, so one lookup table of 16 serves four groups. The group's place in the table is
//! or-ed into the codes as bits 2 and 3, and one permutation looks up 32 elements (experiment 12).

use crate::field::field;
use crate::{OutputElement, Simd, batch, kernel};

kernel!(q2_k);

/// The values of 2-bit codes, for each of the four groups that share a table.
static CODES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0,
];

#[inline(always)]
fn q2_k<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8]) {
    let (blocks, _) = blocks.as_chunks::<84>();
    let (out, _) = O::as_stored(out).as_chunks_mut::<256>();
    for (block, out) in blocks.iter().zip(out) {
        // low nibbles of `scales` are the scales, high nibbles the minima: one unpacking gives both vectors of 16
        let [d, min] = batch::widen_2_f16(simd, field(block, 80));
        let nibbles = simd.u8_to_f32(simd.unpack_nibbles(field(block, 0)));
        let scales = [
            simd.mul(simd.splat(d), nibbles[0]),
            simd.mul(simd.splat(min), nibbles[1]),
        ];
        // the scales are F16 times integers: finite factors exclude NaN, and differences of such products are multiples of
        // 2^-24, hence never subnormal
        if O::IS_ROUNDED && !(d.is_finite() && min.is_finite()) {
            groups::<S, O, false>(simd, field(block, 16), scales, out);
        } else {
            groups::<S, O, true>(simd, field(block, 16), scales, out);
        }
    }
}

#[inline(always)]
fn groups<S: Simd, O: OutputElement, const ASSUME_NORMAL: bool>(
    simd: S,
    qs: &[u8; 64],
    [scales, minima]: [S::Floats; 2],
    out: &mut [O::Stored; 256],
) {
    let codes = simd.load_f32(&CODES);
    // table k has the results of groups 4 * k .. 4 * k + 4, four each: scales and minima are repeated to match
    let factors = simd
        .repeat_each_4(scales)
        .into_iter()
        .zip(simd.repeat_each_4(minima));
    let mut tables = [codes; 4];
    for (table, (scales, minima)) in tables.iter_mut().zip(factors) {
        // as the reference: `d * scale * q` is exact, and the subtraction rounds
        *table = simd.sub(simd.mul(scales, codes), minima);
    }
    // each group of 16 codes selects its quarter of the table, in bits 2 and 3
    // joined to the codes instead of looking up in a table per group: a permutation of 16 entries uses four bits anyway
    let groups = [
        simd.concat_u8x16(&[0; 16], &[4; 16]),
        simd.concat_u8x16(&[8; 16], &[12; 16]),
    ];
    for ((qs, tables), out) in qs
        .as_chunks::<32>()
        .0
        .iter()
        .zip(tables.as_chunks::<2>().0)
        .zip(out.as_chunks_mut::<128>().0)
    {
        let tables = O::tables::<S, ASSUME_NORMAL>(simd, *tables);
        let qs = simd.load_u8(qs);
        for ((i, out), shift) in out
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .enumerate()
            .zip([0, 2, 4, 6])
        {
            // the group's place replaces the upper bits of the code
            let codes = simd.or(
                simd.and(simd.shr_u16(qs, shift), simd.splat_u8(3)),
                groups[i % 2],
            );
            O::lookup(simd, tables, [i / 2; 2], codes, out);
        }
    }
}
