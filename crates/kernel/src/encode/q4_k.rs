//! Encoder of Q4_K (`quantize_row_q4_K_ref`, `quantize_row_q4_K_impl`); the layout is in `block/q4_k.rs`.

use super::affine::AffineTrials;
use super::lanes::{EncodedColumns, Lanes};
use super::{BlockEncoder, k_affine};
use crate::simd::Simd;

pub(super) struct Q4K;

impl BlockEncoder for Q4K {
    const LEN: usize = 256;
    const BYTES: usize = 144;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let unweighted = AffineTrials {
            max: 15,
            first: -1.0,
            step: 0.1,
            last: 20,
            by_magnitude: false,
        };
        let codes = k_affine::encode(simd, blocks, unweighted, out);
        for (pair, codes) in codes.as_chunks::<64>().0.iter().enumerate() {
            for i in 0..32 {
                for lane in 0..16 {
                    out.bytes[16 + 32 * pair + i][lane] = codes[i][lane] | codes[i + 32][lane] << 4;
                }
            }
        }
    }
}
