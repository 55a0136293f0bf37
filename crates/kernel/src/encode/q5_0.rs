//! Encoder of Q5_0 (`quantize_row_q5_0_ref`, `quantize_row_q5_0_impl`); the layout is in `block/q5_0.rs`.

use super::lanes::{EncodedColumns, Lanes, join};
use super::{BlockEncoder, q4_0};
use crate::simd::Simd;

pub(super) struct SymmetricQ5;

impl BlockEncoder for SymmetricQ5 {
    const LEN: usize = 32;
    const BYTES: usize = 22;
    const NEEDS_ROW: bool = true;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let codes = q4_0::codes(simd, blocks, 16, out);
        put_fifth_bits(simd, &codes, 2, out);
    }
}

/// Writes the fifth bits of 32 codes and then their nibbles.
#[inline(always)]
pub(super) fn put_fifth_bits<S: Simd>(
    simd: S,
    codes: &[S::Ints; 32],
    at: usize,
    out: &mut EncodedColumns,
) {
    let (nibble, one) = (simd.splat_int(15), simd.splat_int(1));
    for (byte, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
        let mut bits = simd.splat_int(0);
        for (i, code) in codes.iter().enumerate() {
            let bit = simd.and_ints(simd.shr_ints(*code, 4), one);
            bits = simd.or_ints(bits, simd.shl_ints(bit, i as u32));
        }
        out.put(simd, at + byte, bits);
    }
    for i in 0..16 {
        let low = simd.and_ints(codes[i], nibble);
        out.put(simd, at + 4 + i, join(simd, low, codes[i + 16], 4));
    }
}
